"""The commands of `ew`: options in, messages and exit codes out. What they do is in the rooms below."""
