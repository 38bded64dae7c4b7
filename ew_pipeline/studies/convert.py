"""`ew convert`: a public dataset that you have downloaded, as the sales table of every other command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from ew_pipeline.core.console import emit_json, results
from ew_pipeline.core.errors import UsageError
from ew_pipeline.studies import datasets
from ew_pipeline.studies.datasets import DATASETS, Dataset


def convert(
    dataset: Annotated[
        str | None, typer.Argument(help=f"One of {', '.join(DATASETS)}; without it they are listed.")
    ] = None,
    source: Annotated[Path | None, typer.Argument(help="What you have downloaded.")] = None,
    to: Annotated[Path | None, typer.Option(help="The table to write: .parquet or .csv.")] = None,
    department: Annotated[
        list[str] | None, typer.Option(help="m5: only this department, such as FOODS_3; repeatable.")
    ] = None,
    weeks: Annotated[int | None, typer.Option(min=1, help="m5: the last weeks only (default 63).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Turn the files of a public dataset into a table of weekly sales.

    The datasets are not part of this project: download them from their publishers, under their terms.

    Exit codes: 0 done; 1 not the file that was expected; 2 wrong call.
    """
    if dataset is None:
        _list(as_json=json)
        return
    if dataset not in DATASETS:
        raise UsageError(f"there is no dataset {dataset!r}.", f"choose from {', '.join(DATASETS)}.")
    chosen = DATASETS[dataset]
    if source is None or to is None or to.suffix not in (".parquet", ".csv"):
        raise UsageError(
            f"{dataset} needs {chosen.file}, and a file to write that ends in .parquet or .csv.",
            f"ew convert {dataset} PATH --to sales.parquet",
        )
    given: dict[str, Any] = {}
    if department:
        given["departments"] = tuple(department)
    if weeks is not None:
        given["last_weeks"] = weeks
    if given and dataset != "m5":
        raise UsageError("--department and --weeks are of m5 alone.", "leave them out.")
    frame = _reader(chosen)(source, **given)
    _write(frame, to)
    _report(dataset, frame, to, as_json=json)


def _reader(dataset: Dataset) -> Callable[..., pd.DataFrame]:
    found: Callable[..., pd.DataFrame] = getattr(datasets, dataset.reader)
    return found


def _write(frame: pd.DataFrame, to: Path) -> None:
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        if to.suffix == ".csv":
            frame.to_csv(to, index=False)
        else:
            frame.to_parquet(to, index=False)
    except OSError as error:
        raise UsageError(f"{to} cannot be written: {error.strerror}.", "choose another --to.") from error


def _report(name: str, frame: pd.DataFrame, to: Path, *, as_json: bool) -> None:
    more = DATASETS[name].evaluate.format(to=to)
    then = f"ew evaluate --sales {to} {more}".rstrip()
    found = {
        "dataset": name,
        "table": str(to),
        "rows": len(frame),
        "stores": int(frame["store_id"].nunique()),
        "skus": int(frame["sku_id"].nunique()),
        "weeks": int(frame["week"].nunique()),
        "units": int(frame["units"].sum()),
        "next": then,
    }
    if as_json:
        emit_json(found)
        return
    results().print(
        f"{to}: {found['rows']} rows, {found['stores']} stores, {found['skus']} SKUs, {found['weeks']} weeks,"
        f" {found['units']} units\nNext: {then}",
        soft_wrap=True,
        markup=False,
    )


def _list(*, as_json: bool) -> None:
    if as_json:
        emit_json({name: asdict(dataset) for name, dataset in DATASETS.items()})
        return
    for name, dataset in DATASETS.items():
        results().print(
            f"{name}\n  {dataset.title}\n  from {dataset.publisher}\n  terms: {dataset.terms}\n"
            f"  pass {dataset.file}",
            soft_wrap=True,
            markup=False,
        )
