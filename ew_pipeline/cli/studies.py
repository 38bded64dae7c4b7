"""Studies and benchmarks are in a checkout, not in the installed package."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from ew_pipeline.core.errors import UsageError

if TYPE_CHECKING:
    from ew_pipeline.backtest.policies import Policy

STUDIES = "ew_pipeline.studies"


def has_studies() -> bool:
    """Whether this is a checkout. It looks for a module: an empty folder that is left also imports."""
    try:
        return find_spec(f"{STUDIES}.ensemble") is not None
    except ModuleNotFoundError:
        return False


def refuse_without_studies(command: str) -> None:
    """Raise what a person can act on."""
    if not has_studies():
        raise UsageError(
            f"`ew {command}` is a study: it is in the source repository, not in this package.",
            f"clone the repository, and there: make setup && .venv/bin/ew {command}",
        )


def published_methods() -> tuple[Policy, ...]:
    """Methods of other authors as policies, where the studies are there."""
    if not has_studies():
        return ()
    methods = import_module(f"{STUDIES}.baselines").published_methods()
    return cast("tuple[Policy, ...]", methods)
