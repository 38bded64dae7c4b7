"""The quick configuration of `support.chain`, as the TOML file a person would write."""

QUICK_TOML = """
history_weeks = 4

[detector]
mode = "variational"
rank = 1
noise = "poisson"
anomaly = "exponential"

[gate]
max_flagged_share = 1.0
min_pairs = 10
min_null_gain = -1e9
min_reporting_share = 0.0
"""
