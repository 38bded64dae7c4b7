"""MLflow beside the run: it works, and whatever happens to it, the run goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from support.sending import send

from ew_pipeline.core.settings import Settings
from ew_pipeline.tracking import worker
from ew_pipeline.tracking.delivery import (
    Delivery,
    deliver,
    deliver_all,
    read_delivery,
    undelivered,
    write_delivery,
)
from ew_pipeline.tracking.facts import week_facts
from ew_pipeline.tracking.store import tracking_client
from ew_pipeline.tracking.weekly import Tracking

pytestmark = pytest.mark.server
NOWHERE = "http://127.0.0.1:9"  # the discard port: refused at once


def test_a_week_is_tracked_beside_the_run(computed, settings, tmp_path, capfd, monkeypatch):
    missed = computed(week="2026-W33")
    write_delivery(missed.folder, Delivery(week_facts(missed), wanted="published", publication_id="8"))
    result = computed()
    (result.folder / "check_list.csv").write_text("store_id\n")
    with Tracking(settings) as tracking:
        tracked = tracking.track(result)
        assert tracked.reason is None
        assert tracked.words == f"run {tracked.run_id[:12]}"
        finished = tracking.finish(tracked, "computed", result.folder / "report.html")
        child = tracking._child.process
        assert finished == tracked
        os.kill(child.pid, signal.SIGKILL)  # MLflow's process is lost before the week is published
        child.wait()
        monkeypatch.setattr(sys, "executable", "/bin/false")
        lost = tracking.finish(tracked, "published", publication_id="2026-W34/1")
    assert lost.run_id == tracked.run_id
    assert "ended with code" in lost.reason
    assert capfd.readouterr() == ("", "")
    assert list((tmp_path / "elsewhere").iterdir()) == []

    client = tracking_client(settings)
    files = {item.path for item in client.list_artifacts(tracked.run_id)}
    assert files == {"report.html", "check_list.csv"}
    assert client.get_run(tracked.run_id).data.tags["ew.status"] == "computed"
    assert undelivered(settings) == [result.folder]  # the week that was missed before has been sent as well
    champion = client.get_model_version_by_alias("ew-detector", "champion")
    assert champion.tags["ew.run_id"] == missed.run_id
    deliver_all(settings)
    run = client.get_run(tracked.run_id)
    assert run.data.tags["ew.status"] == "published"
    assert run.data.tags["ew.publication_id"] == "2026-W34/1"
    assert client.get_model_version_by_alias("ew-detector", "champion").tags["ew.run_id"] == result.run_id


def test_a_server_that_hangs_is_given_up_and_the_week_sent_later(computed, settings):
    result = computed()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        hanging = Settings(home=settings.home, MLFLOW_TRACKING_URI=uri)
        with Tracking(hanging, patience=2.0) as tracking:
            tracked = tracking.track(result)
    assert tracked.run_id is None
    assert tracked.links == {}
    assert tracked.words == f"not tracked: MLflow at {uri} took more than 2 s"
    assert undelivered(settings) == [result.folder]
    (delivery,) = deliver_all(settings)
    assert tracking_client(settings).get_run(delivery.mlflow_run_id).data.tags["ew.status"] == "computed"


def test_a_server_that_refuses_is_asked_again_and_then_given_up(computed, settings, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    pauses = []
    monkeypatch.setattr(worker.time, "sleep", pauses.append)
    result = computed()
    facts = week_facts(result)
    write_delivery(result.folder, Delivery(facts, wanted=facts.status))
    answer = worker._deliver(result.folder, Settings(home=settings.home, MLFLOW_TRACKING_URI=NOWHERE))
    assert answer == {"reason": f"MLflow at {NOWHERE} does not answer: Connection refused"}
    assert pauses == list(worker.PAUSES)
    assert read_delivery(result.folder).reason == f"{answer['reason']}."


def test_a_run_that_can_never_be_sent_does_not_hold_up_the_others(computed, settings):
    first, second, third = (computed(week=f"2026-W{number}") for number in (31, 32, 33))
    for result in (first, second, third):
        write_delivery(result.folder, Delivery(week_facts(result), wanted="computed"))
    (second.segments[0].model / "model.json").unlink()
    (first.folder / "tracking.json").write_text("{")
    broken, sent = deliver_all(settings)
    assert "there is no model in" in broken.reason
    assert sent.settled
    assert undelivered(settings) == [second.folder]


def test_what_the_run_asks_for_while_it_is_being_sent_is_not_lost(computed, settings):
    result = computed()
    facts = week_facts(result)
    write_delivery(result.folder, Delivery(facts, wanted="computed"))

    def publish_meanwhile(_: object) -> None:
        now = read_delivery(result.folder)
        report = {"report.html": str(result.folder / "report.html")}
        write_delivery(result.folder, replace(now, wanted="published", artifacts=report))

    delivered = deliver(result.folder, settings, publish_meanwhile)
    assert not delivered.settled
    assert (delivered.sent, delivered.wanted) == ("computed", "published")
    assert deliver(result.folder, settings).settled
    client = tracking_client(settings)
    assert client.get_run(delivered.mlflow_run_id).data.tags["ew.status"] == "published"


def test_a_crash_between_the_ledger_and_mlflow_is_made_good(computed, settings, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = computed()
    send(result, settings)
    with Tracking(settings) as tracking:
        tracking.confirm_published(result.folder, "5")
        tracking.confirm_published(settings.root / "gone", "5")
    (delivery,) = deliver_all(settings)
    assert (delivery.sent, delivery.publication_id) == ("published", "5")


def test_a_status_that_was_missed_is_sent_with_the_week(computed, settings):
    """Published while MLflow was away: sent later, the model is champion as if nothing had been."""
    result = computed()
    facts = week_facts(result)
    lost = Delivery(facts, wanted="published", publication_id="9")
    write_delivery(result.folder, lost)
    deliver_all(settings)
    client = tracking_client(settings)
    assert client.get_model_version_by_alias("ew-detector", "champion").tags["ew.week"] == "2026-W34"
    assert read_delivery(result.folder).settled


def test_a_process_that_cannot_start_costs_the_week_nothing(computed, settings, monkeypatch):
    result = computed()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Tracking(settings) as tracking:
        tracked = tracking.track(result)
        again = tracking.finish(tracked, "published", result.folder / "report.html")
    assert tracked.words == "not tracked: the tracking process ended with code 1: it said nothing"
    assert again.run_id is None
    assert read_delivery(result.folder).wanted == "published"


def test_a_run_folder_that_is_gone_costs_the_week_nothing(computed, settings, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = replace(computed(), folder=settings.root / "gone")
    with Tracking(settings) as tracking:
        tracked = tracking.track(result)
        assert tracking.finish(tracked, "held").run_id is None
    assert "No such file or directory" in tracked.words


ORPHAN = """
import sys, time
from pathlib import Path
from ew_pipeline.core.settings import Settings
from ew_pipeline.tracking.weekly import Tracking
tracking = Tracking(Settings(home=Path(sys.argv[1])))
print(tracking._child.process.pid, flush=True)
time.sleep(600)
"""


def test_the_process_ends_with_a_run_that_was_killed(settings):
    run = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(settings.root)], stdout=subprocess.PIPE, text=True
    )
    try:
        child = int(run.stdout.readline())
    finally:
        run.kill()
        run.communicate()
    deadline = time.monotonic() + 120.0
    with contextlib.suppress(ProcessLookupError):
        while running(child):
            assert time.monotonic() < deadline, f"process {child} is an orphan"
            time.sleep(0.2)


def running(pid: int) -> bool:
    os.kill(pid, 0)
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"  # a zombie waits only to be counted


@pytest.mark.parametrize("status", ["held", "shadow"])
def test_ending_as_it_was_computed_sends_the_report_alone(status, computed, settings):
    result = computed(shadow=status == "shadow")
    facts = replace(week_facts(result), status=status)
    files = {"report.html": str(result.folder / "report.html")}
    write_delivery(result.folder, Delivery(facts, wanted=status, artifacts=files))
    (delivery,) = deliver_all(settings)
    client = tracking_client(settings)
    assert client.get_run(delivery.mlflow_run_id).data.tags["ew.status"] == status
    assert [item.path for item in client.list_artifacts(delivery.mlflow_run_id)] == ["report.html"]
