"""Compiled parts that several engines share."""
