"""The weekly run: from a sales file to published flags.

read and validate -> snapshot -> matrix -> fit -> price -> decide -> gate -> track -> report -> publish

Each stage is one module with one plain function; `run` puts them in order, for the command, the Prefect flow
and a backfill alike. `records` holds what travels between them.
"""
