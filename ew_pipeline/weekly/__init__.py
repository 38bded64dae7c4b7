"""The weekly run: from a sales file to published flags.

read and validate -> snapshot -> matrix -> fit -> probability -> decide -> gate -> track -> report -> publish

`run` puts the steps in order, for the command, the Prefect flow and a backfill alike; each step is a function
of a room below. `results` holds what travels between them.
"""
