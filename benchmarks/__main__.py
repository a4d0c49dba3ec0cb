"""Runs every benchmark, one after the other."""

from benchmarks import ablation, atlas, induction, training

for benchmark in (atlas, ablation, induction, training):
    benchmark.run()
