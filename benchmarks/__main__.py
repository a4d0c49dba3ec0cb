"""Runs every benchmark, one after the other."""

from benchmarks import ablation, atlas

for benchmark in (atlas, ablation):
    benchmark.run()
