"""The pieces of `ew up` by themselves: what is refused before anything starts, and how parts are kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ew_pipeline.core.errors import EwError, UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.servers.plan import Ports, find_flows, make_plan
from ew_pipeline.servers.ports import LOOPBACK, listening
from ew_pipeline.servers.standing import holding, record, standing
from ew_pipeline.servers.supervisor import MARK, Part, Patience, Supervisor, of_mark

ROOT = Path(__file__).resolve().parents[2]
ANY = Ports(0, 0, 0)
pytestmark = pytest.mark.server
STARTS_ANOTHER = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("started", flush=True)
time.sleep(600)
"""


SUPERVISES = """
import sys
from pathlib import Path
from ew_pipeline.servers.supervisor import Part, Supervisor
mark, logs, program = sys.argv[1:]
environment = {"PATH": "/usr/bin:/bin", "EW_UP_MARK": mark, "PYTHONPATH": ":".join(sys.path)}
with Supervisor(environment, Path(logs)) as one:
    one.start(Part("a part", [sys.executable, "-c", program], "somewhere", lambda: True))
    one.watch()
"""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "EW_CHECKOUT"):
        monkeypatch.delenv(name, raising=False)
    return Settings(home=tmp_path)


@pytest.fixture
def sales(tmp_path):
    (tmp_path / "sales.parquet").write_bytes(b"")
    return {"EW_SALES": str(tmp_path / "sales.parquet")}


@pytest.fixture
def supervisor(tmp_path):
    """With signals as they were afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), MARK: f"test-{tmp_path.name}"}
    patience = Patience(deaths=3, first_wait=0.05)
    try:
        with Supervisor(environment, tmp_path / "logs", patience) as made:
            yield made
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def python(program, ready):
    return Part("a part", [sys.executable, "-c", program], "somewhere", ready)


def test_without_sales_it_is_a_wrong_call(settings):
    with pytest.raises(UsageError, match="no sales") as caught:
        make_plan(settings, {"EW_SALES": None}, ANY)
    assert "--sales" in caught.value.next_step


def test_sales_that_are_gone_are_named(settings):
    with pytest.raises(UsageError, match=r"EW_SALES is not there: gone\.parquet"):
        make_plan(settings, {"EW_SALES": "gone.parquet"}, ANY)


def test_a_port_that_is_taken_is_refused_with_the_option_that_chooses_another(settings, sales):
    with listening(LOOPBACK, 0) as taken, pytest.raises(EwError, match="is taken") as caught:
        make_plan(settings, sales, Ports(0, taken.getsockname()[1], 0))
    assert "--prefect-port 0" in caught.value.next_step


def test_everything_is_in_the_home_and_on_loopback(settings, sales):
    plan = make_plan(settings, sales, ANY)
    assert plan.environment["PREFECT_HOME"] == str(settings.root / "prefect")
    assert plan.environment["EW_CHECKOUT"] == str(ROOT)
    addresses = {plan.pages, plan.prefect, plan.mlflow}
    assert len(addresses) == 3
    assert all(address.startswith("http://127.0.0.1:") for address in addresses)


def test_servers_that_are_given_are_used(settings, sales):
    given = settings.model_copy(
        update={"prefect_api_url": "http://127.0.0.1:9/api", "mlflow_tracking_uri": "http://127.0.0.1:8"}
    )
    plan = make_plan(given, sales, ANY)
    assert (plan.own_prefect, plan.own_mlflow) == (False, False)
    assert (plan.api, plan.mlflow) == ("http://127.0.0.1:9/api", "http://127.0.0.1:8")


def test_a_checkout_without_flows_says_what_to_set(tmp_path):
    with pytest.raises(UsageError, match=r"prefect\.yaml") as caught:
        find_flows(str(tmp_path))
    assert "EW_CHECKOUT" in caught.value.next_step


def test_one_holds_the_home_and_says_where_it_is(settings):
    assert standing(settings) is None
    with holding(settings):
        record(settings, {"pages": "http://127.0.0.1:1", "pid": 7, "since": "now"})
        assert standing(settings)["pages"] == "http://127.0.0.1:1"
        with pytest.raises(EwError, match=r"http://127\.0\.0\.1:1 .*pid 7"), holding(settings):
            pass
    assert standing(settings) is None


def test_a_part_that_keeps_dying_is_given_up_with_the_end_of_its_log(supervisor, tmp_path):
    supervisor.start(python("print('no such luck'); raise SystemExit(5)", lambda: False))
    with pytest.raises(EwError, match=r"died 3 times; the last time it ended with 5") as caught:
        supervisor.watch()
    assert "no such luck" in caught.value.message
    assert str(tmp_path / "logs" / "a-part.log") in caught.value.next_step
    assert caught.value.exit_code == 3


def test_what_a_part_has_started_ends_with_it(supervisor, tmp_path):
    log = tmp_path / "logs" / "a-part.log"
    supervisor.start(python(STARTS_ANOTHER, lambda: log.is_file() and "started" in log.read_text()))
    supervisor.wait_for("a part")
    mark = supervisor.environment[MARK]
    started = of_mark(mark)
    assert len(started) == 3  # the part, what it has started, and the sentinel
    supervisor.stop()
    assert not any(psutil.pid_exists(process.pid) and process.is_running() for process in started)


def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path):
    mark = f"killed-{tmp_path.name}-{os.getpid()}"
    killed = subprocess.Popen(
        [sys.executable, "-c", SUPERVISES, mark, str(tmp_path), STARTS_ANOTHER],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    assert eventually(lambda: len(of_mark(mark)) == 3)  # the part, what it has started, and the sentinel
    killed.kill()
    killed.wait()
    assert eventually(lambda: not of_mark(mark)), of_mark(mark)


def eventually(look, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
