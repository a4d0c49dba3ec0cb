"""Runs every benchmark, one after the other."""

from benchmarks import ablation, atlas, induction, probing, training

for benchmark in (atlas, ablation, induction, probing, training):
    benchmark.run()
