"""`python -m ew_pipeline.cli`: the `ew` command."""

from ew_pipeline.cli.main import main

main()
