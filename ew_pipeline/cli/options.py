"""Options that `ew run` and `ew backfill` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Sales = Annotated[str, typer.Option(help="Sales: parquet, CSV, a folder of them, or SQL.", envvar="EW_SALES")]
Listing = Annotated[str | None, typer.Option(help="Which store ranges what.", envvar="EW_LISTING")]
CostTable = Annotated[str | None, typer.Option(help="Costs by store, SKU or both.", envvar="EW_COSTS")]
Stores = Annotated[
    str | None, typer.Option(help="Attributes of stores, for --segment-by.", envvar="EW_STORES")
]
Skus = Annotated[str | None, typer.Option(help="Attributes of SKUs, for --segment-by.", envvar="EW_SKUS")]
SegmentBy = Annotated[str | None, typer.Option(help="Fit one matrix per value of this column.")]
Mode = Annotated[str | None, typer.Option(help="Mode of the detector.")]
Dask = Annotated[
    str | None,
    typer.Option(
        "--dask", metavar="ADDRESS", help="Scheduler of a Dask cluster to work on.", envvar="EW_DASK_ADDRESS"
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(help="TOML or JSON file with fields of the configuration; options win over it."),
]
