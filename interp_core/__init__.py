"""The library: pure functions over one GPT. See `model.py` first."""
