"""Runs every benchmark, one after the other."""

from benchmarks import ablation, atlas, induction

for benchmark in (atlas, ablation, induction):
    benchmark.run()
