"""Which code and libraries made a run, and how to get them back."""

from __future__ import annotations

from dataclasses import dataclass

from ew_pipeline.core.provenance import code_version, environment
from ew_pipeline.ledger import Run

# Orchestration and tracking libraries change no number.
NUMERIC = ("python", "machine", "numpy", "scipy", "numba", "pandas", "pyarrow", "duckdb")
DIRTY = ".dirty"


@dataclass(frozen=True)
class VersionDifference:
    """Something that is not what the run was made with."""

    name: str
    recorded: str
    here: str

    def __str__(self) -> str:
        return f"{self.name} {self.recorded} was recorded, this is {self.here}"


def version_differences(run: Run) -> tuple[VersionDifference, ...]:
    """The code first, then the libraries that do arithmetic."""
    here = environment()
    found = [VersionDifference("ew-pipeline", run.code_version, code_version())]
    found += [
        VersionDifference(name, run.environment.get(name, "none"), here.get(name, "none")) for name in NUMERIC
    ]
    return tuple(one for one in found if one.recorded != one.here)


def uncertain(run: Run) -> bool:
    """The run was made from a checkout with changes that were never committed."""
    return run.code_version.endswith(DIRTY)


def checkout_command(run: Run, home: str) -> str:
    """What to type to replay with the recorded version."""
    version, _, commit = run.code_version.removesuffix(DIRTY).partition("+")
    again = f"EW_HOME={home} .venv/bin/ew audit replay {run.run_id}"
    if commit:
        return f"git worktree add ../ew-{commit} {commit} && cd ../ew-{commit} && make setup && {again}"
    return f"python3 -m venv .venv && .venv/bin/pip install ew-pipeline=={version} && {again}"
