"""Experiments, benchmarks and public datasets. Not in the wheel: they need a checkout."""
