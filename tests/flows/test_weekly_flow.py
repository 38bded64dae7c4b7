"""`ew run` through Prefect, as a person runs it: nothing started before, nothing left after."""

from __future__ import annotations

import json
import sqlite3

import pytest
from support.chain import LAST_WEEK, sources, write_chain
from support.flows_support import QUICK_TOML
from support.prefect_servers import call, environment

pytestmark = pytest.mark.server
STEPS = {
    "open the ledger",
    "check the data",
    "assemble the matrix",
    "level from history",
    "fit the detector",
    "fit past weeks",
    "price the evidence",
    "fit the week alone",
    "decide what to check",
    "track in MLflow",
    "write the report",
    "publish",
    "look for drift",
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(folder, answer). That the same week again is unchanged is seen on the server of `ew up`."""
    folder = tmp_path_factory.mktemp("weekly-flow")
    tables = sources(write_chain(folder / "chain"))
    (folder / "quick.toml").write_text(QUICK_TOML)
    options = [word for name, path in tables.items() for word in (f"--{name}", path)]
    words = ["ew", "run", "--week", LAST_WEEK, *options, "--config", "quick.toml", "--json"]
    return folder, call(words, environment(folder), folder)


def test_the_week_is_published(ran):
    _, first = ran
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["status"] == "published"


def test_the_console_has_one_line_a_step_and_nothing_of_the_tools_beneath(ran):
    _, first = ran
    said = first.stderr.splitlines()
    assert {line[8:52].strip() for line in said if line.startswith("ok ")} == STEPS
    for word in ("Warning", "Traceback", "INFO", "ERROR", "deprecat", "prefect", "Prefect"):
        assert word not in first.stderr, first.stderr


def test_prefect_has_the_run_with_readable_names_and_the_outcome(ran):
    folder, first = ran
    with sqlite3.connect(folder / ".ew" / "prefect" / "prefect.db") as database:
        runs = database.execute("select id, name, state_name from flow_run order by start_time").fetchall()
        (run_id, name, state), *_ = runs
        tasks = {row[0] for row in database.execute("select name from task_run").fetchall()}
        kinds = {row[0] for row in database.execute("select type from artifact").fetchall()}
    assert (name, state) == (f"week {LAST_WEEK}", "Published")
    assert tasks >= STEPS
    assert kinds == {"markdown", "table"}
    assert json.loads(first.stdout)["flow_run_id"].replace("-", "") == run_id.replace("-", "")


def test_everything_is_in_the_home_and_nothing_beside_it(ran):
    folder, _ = ran
    assert {path.name for path in folder.iterdir()} <= {"chain", "quick.toml", ".ew", ".cache", ".config"}
