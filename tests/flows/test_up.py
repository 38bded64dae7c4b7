"""`ew up` as it is used: real servers and worker on loopback run a week; nothing is left when it ends."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from zoneinfo import ZoneInfo

import psutil
import pytest
from flows_support import QUICK_TOML
from prefect_servers import PATIENCE, ROOT, environment
from weekly.chain import LAST_WEEK, sources, write_chain

from ew_pipeline.orchestrate.up.processes import HOME_MARK, marked
from ew_pipeline.orchestrate.up.rest import Api
from ew_pipeline.publish.ledger import Ledger
from ew_pipeline.settings import Settings
from ew_pipeline.week import Week

WORDS = [sys.executable, "-m", "ew_pipeline.cli"]
PORTS = ["--pages-port", "0", "--prefect-port", "0", "--mlflow-port", "0"]


class Up:
    """One `ew up` after the other in the same home."""

    def __init__(self, folder):
        self.home = folder / "ew"
        self.log = folder / "up.log"
        tables = sources(write_chain(folder / "chain"))
        self.options = [word for name, path in tables.items() for word in (f"--{name}", path)]
        self.variables = environment(
            folder, EW_HOME=str(self.home), PYTHONPATH=str(ROOT), PREFECT_WORKER_QUERY_SECONDS="1"
        )

    def start(self, **more):
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*WORDS, "up", *self.options, *PORTS, "--json"],
                env={**self.variables, **more},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        said = ""
        while not said.endswith("}\n"):
            line = self.process.stdout.readline()
            assert line, self.log.read_text()
            said += line
        self.found = json.loads(said)
        self.api = Api(self.found["prefect_api"])

    def call(self, *words):
        return subprocess.run(
            [*WORDS, *words], env=self.variables, capture_output=True, text=True, check=False
        )

    def run_week(self):
        deployment = self.api.get("/deployments/name/weekly/weekly")
        parameters = {"week": LAST_WEEK, "config": tomllib.loads(QUICK_TOML)}
        made = self.api.post(f"/deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})
        return made["id"]

    def wait(self, run, until):
        return self.eventually(
            lambda: (found := self.api.get(f"/flow_runs/{run}")) and until(found) and found
        )

    def eventually(self, look, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if answer := look():
                return answer
            assert self.process.poll() is None or self.process.returncode < 0, self.log.read_text()
            time.sleep(0.2)
        raise AssertionError(self.log.read_text())

    def part(self, word):
        children = psutil.Process(self.process.pid).children()
        (found,) = [child for child in children if word in " ".join(child.cmdline())]
        return found

    def left(self):
        return [process.pid for process in marked(lambda _, home: home == str(self.home))]


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    one = Up(tmp_path_factory.mktemp("up"))
    one.start()
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.terminate()
            one.process.wait(60)
        for pid in one.left():
            os.kill(pid, signal.SIGKILL)


def test_every_part_answers_and_the_schedule_is_that_of_the_file(up):
    for part in ("pages", "prefect", "mlflow"):
        with urllib.request.urlopen(f"{up.found[part]}/", timeout=20) as answer:
            assert answer.status == 200, part
    said = up.log.read_text()
    assert {line.split()[1] for line in said.splitlines() if line.startswith("ok ")} == {
        "Prefect",
        "MLflow",
        "pages",
        "worker",
        "deployments",
    }
    next_run = dt.datetime.fromisoformat(up.found["next_run"]).astimezone(ZoneInfo("Europe/Berlin"))
    assert (next_run.weekday(), next_run.hour) == (0, 6)
    assert f"next run: Monday {next_run:%d}" in said
    deployment = up.api.get("/deployments/name/weekly/weekly")
    (schedule,) = deployment["schedules"]
    assert schedule["schedule"]["cron"] == "0 6 * * 1"
    assert deployment["global_concurrency_limit"]["limit"] == 1


def test_a_second_one_in_the_home_is_refused_and_doctor_knows_the_first(up):
    second = up.call("up", *up.options, *PORTS)
    assert second.returncode == 3
    assert up.found["pages"] in second.stderr
    assert f"kill {up.process.pid}" in second.stderr
    findings = json.loads(up.call("doctor", "--json").stdout)["findings"]
    (about,) = [finding["words"] for finding in findings if finding["name"] == "up"]
    assert up.found["pages"] in about


def test_a_part_that_is_killed_is_started_again(up):
    up.part("prefect worker").kill()
    up.eventually(lambda: "again   worker" in up.log.read_text())
    assert "died    worker          was ended by signal 9" in up.log.read_text()


def test_the_deployed_week_is_published_and_on_the_pages(up):
    done = up.wait(up.run_week(), lambda run: run["state_type"] in ("COMPLETED", "FAILED", "CRASHED"))
    assert done["state_name"] == "Published", done["state"]["message"]
    with Ledger.open(Settings(home=up.home).ledger_url, home=up.home) as ledger:
        publication = ledger.current(Week.parse(LAST_WEEK))
        assert ledger.run(publication.run_id).flow_run_id == done["id"]
        assert ledger.verify() == []
    with urllib.request.urlopen(f"{up.found['pages']}/weeks/{LAST_WEEK}/", timeout=20) as page:
        assert page.read() == publication.report.read_bytes()


def test_killed_in_the_middle_of_a_run_it_leaves_no_process_and_the_next_one_frees_its_place(up):
    run = up.run_week()
    under_way = up.wait(run, lambda found: found["infrastructure_pid"] is not None)
    assert psutil.pid_exists(int(under_way["infrastructure_pid"].rpartition(":")[2]))
    deployment = up.api.get("/deployments/name/weekly/weekly")
    up.part("prefect.server").kill()  # as in a power cut: a run that is ended cannot tell the server any more
    up.process.kill()
    up.process.wait()
    up.eventually(lambda: not up.left(), 30)
    up.start(MLFLOW_TRACKING_URI=f"sqlite:///{up.home / 'mlflow.db'}")
    found = up.api.get(f"/flow_runs/{run}")
    assert (found["state_type"], up.found["crashed"]) == ("CRASHED", [found["name"]])
    again = up.api.get("/deployments/name/weekly/weekly")
    assert again["global_concurrency_limit"]["active_slots"] == 0
    assert (again["id"], again["updated"]) == (deployment["id"], deployment["updated"])  # not deployed again
    assert up.found["mlflow"].startswith("sqlite:")  # as given, and no server of ours


def test_ended_by_a_signal_it_leaves_no_process(up):
    assert HOME_MARK not in os.environ
    assert len(up.left()) >= 4
    up.process.terminate()
    assert up.process.wait(60) == 0
    assert up.left() == []
    assert not (up.home / "up" / "up.json").exists()
