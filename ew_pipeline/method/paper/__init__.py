"""Algorithms 1 and 2 as printed, one step to a file."""
