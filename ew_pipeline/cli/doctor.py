"""`ew doctor`: what is configured, what is missing, and what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from ew_pipeline import __version__
from ew_pipeline.core.console import ExitCode, emit_json, results
from ew_pipeline.core.errors import EwError
from ew_pipeline.core.files import make_private
from ew_pipeline.core.provenance import code_version
from ew_pipeline.core.settings import Settings
from ew_pipeline.intake.source_passwords import without_password

LEAST_FREE_GB = 2.0
MARKS = {"ok": "green", "note": "yellow", "fault": "bold red"}


@dataclass(frozen=True)
class Finding:
    """One thing looked at. ``fault`` stops a run; ``note`` is worth knowing."""

    name: str
    state: Literal["ok", "note", "fault"]
    words: str
    next_step: str = ""


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Look at everything a run needs. Exit code 3 when something would stop it."""
    found = list(examine(Settings()))
    if json:
        emit_json({"findings": found, "ready": all(finding.state != "fault" for finding in found)})
    else:
        _print(found)
    if any(finding.state == "fault" for finding in found):
        raise typer.Exit(ExitCode.FAILED)


def examine(settings: Settings) -> Iterator[Finding]:
    """Every finding, in the order a run meets them. Nothing is created but the home's folder."""
    yield Finding("version", "ok", f"ew-pipeline {code_version()}, Python {sys.version.split()[0]}")
    yield _home(settings)
    for name, look in (
        ("contract", _contract),
        ("ledger", _ledger),
        ("MLflow", _mlflow),
        ("Prefect", _prefect),
        ("up", _up),
    ):
        yield _guarded(name, look, settings)
    yield _sources()
    yield Finding(
        "retention",
        "ok",
        f"ew audit prune leaves {settings.keep_weeks} published weeks whole (EW_KEEP_WEEKS)",
    )
    if settings.dask_address is not None:
        yield _guarded("Dask", _dask, settings)


def _home(settings: Settings) -> Finding:
    chosen = "EW_HOME" if "EW_HOME" in os.environ else "the default; EW_HOME chooses another"
    try:
        make_private(settings.root)
        with tempfile.TemporaryFile(dir=settings.root):
            pass
    except OSError as error:
        return Finding(
            "home",
            "fault",
            f"cannot write to {settings.root}: {error.strerror}",
            "give the folder to this user, or set EW_HOME to another",
        )
    free = shutil.disk_usage(settings.root).free / 1e9
    if free < LEAST_FREE_GB:
        return Finding(
            "home", "note", f"{settings.root} has {free:.1f} GB free", "make room before the next run"
        )
    return Finding("home", "ok", f"{settings.root} ({chosen}), {free:.0f} GB free")


def _contract(settings: Settings) -> Finding:
    from ew_pipeline.intake.expectations import suites_folder

    folder = suites_folder()
    return Finding("contract", "ok", f"expectations in {folder}")


def _ledger(settings: Settings) -> Finding:
    from ew_pipeline.ledger import Ledger

    where = without_password(settings.ledger_url)
    if settings.database_url is None and not (settings.root / "ledger.db").exists():
        return Finding(
            "ledger", "ok", f"{where}: made by the first run (SQLite; EW_DATABASE_URL for PostgreSQL)"
        )
    with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
        latest = max(ledger.live(), key=lambda publication: publication.week, default=None)
    words = f"{where}: " + (f"last published week {latest.week}" if latest else "no week is published yet")
    return Finding("ledger", "ok", words)


def _mlflow(settings: Settings) -> Finding:
    from ew_pipeline.tracking.delivery import undelivered

    uri = settings.tracking_uri
    if uri.startswith("http"):
        answer = _answers("MLflow", f"{uri}/health", uri, "start the server or correct MLFLOW_TRACKING_URI")
        if answer.state == "fault":
            return answer
    if waiting := undelivered(settings):
        words = f"{without_password(uri)}: {len(waiting)} runs are not fully tracked"
        return Finding("MLflow", "note", words, "nothing: the next run sends them")
    return Finding("MLflow", "ok", f"{without_password(uri)} (MLFLOW_TRACKING_URI for a server)")


def _prefect(settings: Settings) -> Finding:
    if not settings.orchestrate:
        return Finding("Prefect", "note", "not used: EW_ORCHESTRATE is false")
    if settings.prefect_api_url is None:
        return Finding(
            "Prefect", "ok", "embedded for the time of a run (PREFECT_API_URL for a server, which schedules)"
        )
    url = settings.prefect_api_url
    return _answers("Prefect", f"{url}/health", url, "start the server or correct PREFECT_API_URL")


def _up(settings: Settings) -> Finding:
    from ew_pipeline.servers.standing import in_words, standing

    found = standing(settings)
    if found is None:
        return Finding("up", "ok", "not up (`ew up` starts servers, worker and schedule on this machine)")
    return Finding("up", "ok", f"`ew up` is running: {in_words(found)}")


def _dask(settings: Settings) -> Finding:
    from ew_pipeline.cluster.connection import check_workers, connected, some_workers

    address = str(settings.dask_address)
    with connected(address) as client:
        check_workers(client, settings, {})
        return Finding("Dask", "ok", f"{address}: {len(some_workers(client))} workers share what they need")


def _sources() -> Finding:
    named = {name: os.environ[name] for name in ("EW_SALES", "EW_LISTING", "EW_COSTS") if name in os.environ}
    if "EW_SALES" not in named:
        return Finding(
            "sources", "note", "EW_SALES is not set", "name the file at each run: ew run --sales FILE"
        )
    gone = [value for value in named.values() if "://" not in value and not Path(value).exists()]
    if gone:
        return Finding(
            "sources", "fault", f"not there: {', '.join(gone)}", "correct EW_SALES, EW_LISTING, EW_COSTS"
        )
    return Finding(
        "sources", "ok", ", ".join(f"{name} = {without_password(value)}" for name, value in named.items())
    )


def _answers(name: str, url: str, shown: str, next_step: str) -> Finding:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return Finding(name, "ok", f"{shown} answers")
    except (urllib.error.URLError, OSError) as error:
        return Finding(name, "fault", f"{shown} does not answer: {error}", next_step)


def _guarded(name: str, look: Callable[[Settings], Finding], settings: Settings) -> Finding:
    try:
        return look(settings)
    except EwError as error:
        return Finding(name, "fault", error.message, error.next_step or "")


def _print(found: list[Finding]) -> None:
    table = Table.grid(padding=(0, 2))
    for finding in found:
        table.add_row(Text(finding.state, style=MARKS[finding.state]), finding.name, Text(finding.words))
        if finding.next_step:
            table.add_row("", "", Text(f"Next: {finding.next_step}", style="bold"))
    results().print(table)
    faults = sum(finding.state == "fault" for finding in found)
    if faults:
        results().print(f"{faults} to mend before a run.")
    else:
        results().print(f"Ready (ew-pipeline {__version__}). Next: ew run --week W --sales FILE, or ew demo.")
