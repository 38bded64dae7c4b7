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
import urllib.error
import urllib.request
from pathlib import Path
from zoneinfo import ZoneInfo

import pandas as pd
import psutil
import pytest
import sqlalchemy
from support.chain import LAST_WEEK, sources, write_chain
from support.flows_support import QUICK_TOML
from support.postgres import postgres_server
from support.prefect_servers import PATIENCE, ROOT, environment

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger
from ew_pipeline.servers.schedule import Api
from ew_pipeline.servers.supervisor import HOME_MARK, marked

pytestmark = pytest.mark.server

WORDS = [sys.executable, "-m", "ew_pipeline.cli"]
CANARY = "canary-of-the-sales-database"
PORTS = ["--pages-port", "0", "--prefect-port", "0", "--mlflow-port", "0"]


class Up:
    """One `ew up` after the other in the same home; its sales are in a database with a password."""

    def __init__(self, folder, database):
        self.home = folder / "ew"
        self.log = folder / "up.log"
        tables = sources(write_chain(folder / "chain"))
        self.sales = in_database(tables.pop("sales"), database)
        self.options = [word for name, path in tables.items() for word in (f"--{name}", path)]
        self.variables = environment(
            folder,
            EW_HOME=str(self.home),
            EW_SALES=self.sales,
            PYTHONPATH=str(ROOT),
            PREFECT_WORKER_QUERY_SECONDS="1",
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
        self.login = Path(self.found["prefect_login"])
        self.api = Api(self.found["prefect_api"], self.login.read_text().strip())

    def call(self, *words, **more):
        return subprocess.run(
            [*WORDS, *words], env={**self.variables, **more}, capture_output=True, text=True, check=False
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


def in_database(sales, uri):
    """Copy the sales there; their URL with a password (of which this server, on a socket, asks nothing)."""
    url = sqlalchemy.make_url(uri).set(drivername="postgresql+psycopg", password=CANARY)
    engine = sqlalchemy.create_engine(url)
    pd.read_parquet(sales).to_sql("sales", engine, index=False)
    engine.dispose()
    return f"{url.render_as_string(hide_password=False)}#table=sales"


@pytest.fixture(scope="module")
def database():
    with postgres_server() as uri:
        yield uri


@pytest.fixture(scope="module")
def up(tmp_path_factory, database):
    one = Up(tmp_path_factory.mktemp("up"), database)
    try:
        one.start()
        yield one
    finally:
        if one.process.poll() is None:
            one.process.terminate()
            one.process.wait(60)
        for pid in one.left():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow("starts Prefect, MLflow, the pages and a worker")
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


def asked(url, method="GET", body=None, **headers):
    """(code, headers) of the answer."""
    request = urllib.request.Request(url, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


def test_prefect_answers_only_to_its_login_and_to_its_own_pages(up):
    url, own, evil = (
        f"{up.found['prefect_api']}/deployments/filter",
        up.found["prefect"],
        "http://evil.example",
    )
    json_body = {"Content-Type": "application/json"}
    assert asked(url, "POST", b"{}", **json_body)[0] == 401
    assert asked(url, "POST", b"{}", **json_body, Host="evil.example", Origin=evil)[0] == 401
    assert asked(url, "POST", b"{}", **json_body, Authorization="Basic ZXc6Z3Vlc3NlZA==")[0] == 401
    known = json_body | {"Authorization": up.api.headers["Authorization"]}
    wish = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    for origin, allowed in ((evil, None), (own, own), (own.replace("127.0.0.1", "localhost"), ...)):
        code, headers = asked(url, "POST", b"{}", **known, Origin=origin)
        assert code == 200
        assert headers["Access-Control-Allow-Origin"] == (origin if allowed is ... else allowed)
        _, headers = asked(url, "OPTIONS", **wish, Origin=origin)
        assert headers["Access-Control-Allow-Origin"] == (origin if allowed is ... else allowed)


def test_the_login_is_told_and_for_this_user_alone(up):
    assert f"the line in {up.login}" in up.log.read_text()
    assert [path.stat().st_mode & 0o777 for path in (up.home, up.login.parent, up.login)] == [
        0o700,
        0o700,
        0o600,
    ]


def test_a_flow_run_cannot_bring_its_own_command(up, tmp_path):
    deployment = up.api.get("/deployments/name/weekly/weekly")
    for name, value in (("command", f"touch {tmp_path}/ran"), ("env", {"A": "b"}), ("working_dir", "/tmp")):
        run = {"state": {"type": "SCHEDULED"}, "job_variables": {name: value}}
        with pytest.raises(EwError, match="422"):
            up.api.post(f"/deployments/{deployment['id']}/create_flow_run", run)
    template = up.api.get("/work_pools/ew")["base_job_template"]
    assert not {"command", "env", "working_dir"} & set(template["job_configuration"])
    assert not (tmp_path / "ran").exists()


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


@pytest.mark.slow("a whole week in a flow run of a worker")
def test_the_deployed_week_is_published_and_on_the_pages(up):
    done = up.wait(up.run_week(), lambda run: run["state_type"] in ("COMPLETED", "FAILED", "CRASHED"))
    assert done["state_name"] == "Published", done["state"]["message"]
    with Ledger.open(Settings(home=up.home).ledger_url, home=up.home) as ledger:
        publication = ledger.current(Week.parse(LAST_WEEK))
        assert ledger.run(publication.run_id).flow_run_id == done["id"]
        assert ledger.verify() == []
    with urllib.request.urlopen(f"{up.found['pages']}/weeks/{LAST_WEEK}/", timeout=20) as page:
        assert page.read() == publication.report.read_bytes()


def test_ew_run_finds_the_login_of_the_server_in_its_home(up, tmp_path):
    (tmp_path / "quick.toml").write_text(QUICK_TOML)
    words = ("run", "--week", LAST_WEEK, "--sales", up.sales, *up.options, "--json")
    server = {"PREFECT_API_URL": up.found["prefect_api"], "EW_SALES": ""}
    ran = up.call(*words, "--config", str(tmp_path / "quick.toml"), **server)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["status"] == "unchanged"
    assert "Nothing new" in ran.stderr
    unchanged = {"flow_runs": {"state": {"name": {"any_": ["Unchanged"]}}}}
    (run,) = up.api.post("/flow_runs/filter", unchanged)
    assert run["parameters"]["sales"].partition("@")[0].endswith(":***")


def test_no_password_is_in_a_file_or_an_argument(up):
    """After runs by the worker and by `ew run`: the databases, logs, reports of the whole home."""
    login = up.login.read_text().strip()
    files = [path for path in [*up.home.rglob("*"), up.log] if path.is_file() and path != up.login]
    assert up.home / "prefect" / "prefect.db" in files
    for path in files:
        content = path.read_bytes()
        for secret in (CANARY, login, login.partition(":")[2]):
            assert secret.encode() not in content, path
    for pid in [up.process.pid, *up.left()]:
        words = " ".join(psutil.Process(pid).cmdline())
        assert CANARY not in words
        assert login not in words


def test_killed_in_the_middle_of_a_run_it_leaves_no_process_and_the_next_one_frees_its_place(up):
    run = up.run_week()
    under_way = up.wait(run, lambda found: found["infrastructure_pid"] is not None)
    assert psutil.pid_exists(int(under_way["infrastructure_pid"].rpartition(":")[2]))
    deployment = up.api.get("/deployments/name/weekly/weekly")
    known = up.api.get("/collections/views/aggregate-worker-metadata")["prefect"]["process"]
    template = {"base_job_template": known["default_base_job_configuration"]}
    up.api.patch("/work_pools/ew", template)  # as an earlier version made it
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
    assert "command" not in up.api.get("/work_pools/ew")["base_job_template"]["variables"]["properties"]
    assert up.found["mlflow"].startswith("sqlite:")  # as given, and no server of ours


def test_ended_by_a_signal_it_leaves_no_process(up):
    assert HOME_MARK not in os.environ
    assert len(up.left()) >= 4
    up.process.terminate()
    assert up.process.wait(60) == 0
    assert up.left() == []
    assert not (up.home / "up" / "up.json").exists()
