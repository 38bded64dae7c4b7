"""The same model sampled, and averaged over ranks."""
