"""The rooms of the package and their order: a room imports rooms below it, never above or beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ew_pipeline"

# From the top floor to the bottom one; rooms on one floor do not import each other.
FLOORS = (
    ("studies",),
    ("cli",),
    ("web", "servers"),
    ("flows",),
    ("cluster",),
    ("audit", "backtest", "drift", "checks"),
    ("weekly",),
    ("outputs", "tracking"),
    ("ledger",),
    ("results",),
    ("decide",),
    ("infer",),
    ("expect",),
    ("intake",),
    ("simulate",),
    ("method",),
    ("core",),
)
FLOOR = {room: -number for number, rooms in enumerate(FLOORS) for room in rooms}

# Edges that go with the modules they start from or end at: those take their probability from rule labels, and
# leave once the probability of a wrong record is used. The list may only become shorter.
ALLOWED = {
    ("ew_pipeline.infer.pricing", "ew_pipeline.backtest.calibration"),
    ("ew_pipeline.intake.assemble", "ew_pipeline.weekly.past"),
    ("ew_pipeline.weekly.fit_cache", "ew_pipeline.backtest.evidence"),
    ("ew_pipeline.weekly.gate", "ew_pipeline.backtest.calibration"),
    ("ew_pipeline.weekly.labelled_cache", "ew_pipeline.backtest.calibration"),
    ("ew_pipeline.weekly.past", "ew_pipeline.backtest.view"),
    ("ew_pipeline.weekly.price", "ew_pipeline.backtest.calibration"),
    ("ew_pipeline.weekly.price", "ew_pipeline.backtest.evidence"),
    ("ew_pipeline.weekly.price", "ew_pipeline.backtest.recalibrate"),
    ("ew_pipeline.weekly.price", "ew_pipeline.backtest.view"),
}

LAZY = {"ew_pipeline.method.long_parquet"}  # loaded when a parquet file is read, and only then
NOT_IN_THE_METHOD = {"pandas", "pyarrow", "prefect", "mlflow", "great_expectations", "pydantic"}
PURE = ("infer", "decide", "method")  # no clock, no chance of their own: a generator comes in
IMPURE = {"random", "time"}


def modules() -> Iterator[tuple[str, Path]]:
    for folder in (PACKAGE, ROOT / "flows"):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


def room(module: str) -> str:
    """The room of ``ew_pipeline.room.…``; flows are a room of their own."""
    parts = module.split(".")
    name = parts[0] if parts[0] == "flows" else parts[1] if len(parts) > 1 else ""
    return "" if name == "_version" else name


@cache
def imports(module: str) -> tuple[tuple[str, str, bool], ...]:
    """(module, name or "", at the top of the file) of all imports, those inside functions included."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.If)
        for node in ast.walk(function)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, "", id(node) not in inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                target = (whole, "") if whole in MODULES else (str(node.module), alias.name)
                found.append((*target, id(node) not in inside))
    return tuple(found)


def ours(module: str) -> Iterator[tuple[str, str, bool]]:
    return ((target, name, top) for target, name, top in imports(module) if target in MODULES)


def test_rooms_are_those_of_the_layout():
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "_version"}
    assert packages | files | {"flows"} == set(FLOOR)


def test_no_room_imports_a_room_above_or_beside_it():
    upward = {
        (module, target)
        for module in MODULES
        if module != "ew_pipeline"  # the front door exports names of the method
        for target, _, _ in ours(module)
        if room(target) and room(target) != room(module) and FLOOR[room(target)] >= FLOOR[room(module)]
    }
    assert upward - ALLOWED == set()
    assert ALLOWED - upward == set(), "these edges are gone: take them off the list"


def test_no_module_imports_itself_through_others():
    """Imports inside functions may close a circle; those at the top of files may not."""
    below = {module: {target for target, _, top in ours(module) if top} - {module} for module in MODULES}
    left = set(below)
    while left:
        free = {module for module in left if not below[module] & left}
        if not free:
            break
        left -= free
    assert left == set()


def test_the_method_is_numeric_only():
    foreign = {
        (module, target)
        for module in MODULES
        if room(module) == "method" and module not in LAZY
        for target, _, top in imports(module)
        if top and target.partition(".")[0] in NOT_IN_THE_METHOD
    }
    assert foreign == set()


def test_no_room_uses_a_private_name_of_another():
    private = {
        (module, target, name)
        for module in MODULES
        for target, name, _ in ours(module)
        if room(target) not in ("", room(module))
        and any(part.startswith("_") and part != "__init__" for part in (name, target.rpartition(".")[2]))
    }
    assert private == set()


def test_module_names_begin_with_a_letter():
    """Underscores mark compiled parts of the method and nothing else."""
    marked = {
        module for module in MODULES if room(module) != "method" and module.rpartition(".")[2].startswith("_")
    }
    assert marked - {"ew_pipeline._version", "ew_pipeline.cli.__main__"} == set()


@pytest.mark.parametrize("name", PURE)
def test_what_computes_asks_no_clock(name):
    asked = {
        (module, target)
        for module in MODULES
        if room(module) == name
        for target, _, _ in imports(module)
        if target.partition(".")[0] in IMPURE
    }
    assert asked == set()
