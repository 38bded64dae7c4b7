"""Regressions and binned theta for many pairs, whole or in row blocks."""
