"""What is fast, against what: `python -m benchmarks`. Both sides run in one process, and only ratios are claims."""
