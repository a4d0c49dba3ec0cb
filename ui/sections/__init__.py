"""Fragments of pages that have several."""
