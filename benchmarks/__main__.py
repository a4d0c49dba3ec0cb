"""Runs every benchmark, one after the other."""

from benchmarks import atlas

atlas.run()
