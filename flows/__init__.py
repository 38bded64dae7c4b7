"""Prefect flows: wiring only. What they do is in `ew_pipeline`."""
