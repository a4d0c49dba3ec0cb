"""Runs every benchmark, one after the other."""

from benchmarks import ablation, atlas, induction, large, probing, sae, training

for benchmark in (atlas, ablation, induction, probing, sae, training, large):
    benchmark.run()
