"""The flows of evaluation and drift on one Prefect server; how the evaluation is deployed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.chain import run_plainly, write_chain
from support.drift_world import TestWeek, publish_weeks

from ew_pipeline.core.settings import Settings
from ew_pipeline.ledger import Ledger

ROOT = Path(__file__).resolve().parents[2]
WEEK, LATER = "2026-W06", "2026-W11"
pytestmark = pytest.mark.server


def deployments():
    return yaml.safe_load((ROOT / "infra" / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]


def test_the_deployment_names_the_flow_and_its_parameters_after_the_weekly_run():
    from flows.evaluation import evaluation

    by_name = {one["name"]: one for one in deployments()}
    file, _, function = by_name["evaluation"]["entrypoint"].partition(":")
    assert (ROOT / file).is_file()
    assert function == evaluation.name == "evaluation"
    assert set(by_name["evaluation"]["parameters"]) <= set(evaluation.parameters.properties)
    hour = {name: int(one["schedules"][0]["cron"].split()[1]) for name, one in by_name.items()}
    assert hour["weekly"] < hour["evaluation"]


@pytest.fixture(scope="module")
def prefect():
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=180):
        yield


@pytest.fixture
def home(tmp_path, monkeypatch):
    tables = write_chain(tmp_path / "chain", weeks=12, stores=12, skus=40)
    for week in (WEEK, LATER):
        run_plainly(tmp_path / "home", tables, week, override_why="a test")
    monkeypatch.setenv("EW_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.slow("weeks to evaluate, and a Prefect server")
def test_the_flow_evaluates_what_is_due_and_then_has_nothing_to_do(home, prefect):
    from prefect.client.orchestration import get_client

    from flows.evaluation import evaluation

    first = evaluation(policies=["trailing"], return_state=True)
    second = evaluation(policies=["trailing"], return_state=True)
    with get_client(sync_client=True) as client:
        artifacts = {artifact.key for artifact in client.read_artifacts()}
    assert (first.name, first.message) == ("Evaluated", "1 evaluated")
    assert (second.name, second.message) == ("Unchanged", "0 evaluated")
    assert artifacts == {"evaluation", "evaluation-page"}
    with Ledger.open(Settings().ledger_url, home=home) as ledger:
        assert ledger.table("evaluations")["week"].tolist() == [WEEK]
        assert ledger.verify() == []


def test_the_drift_flow_raises_the_alert_as_an_event_and_ends_in_the_state_alert(
    tmp_path, monkeypatch, prefect
):
    from prefect.events.utilities import emit_event

    from flows import drift as flows

    publish_weeks(Settings(home=tmp_path), [TestWeek()] * 9 + [TestWeek(anomaly_rate=0.1)] * 3)
    monkeypatch.setenv("EW_HOME", str(tmp_path))
    monkeypatch.delenv("EW_ALERT_URL", raising=False)
    emitted = []

    def keep(**event):
        emitted.append(emit_event(**event))
        return emitted[-1]

    monkeypatch.setattr(flows, "emit_event", keep)
    state = flows.drift(return_state=True)
    flows.drift_response(alert_id=emitted[0].payload["alert_id"])
    assert (state.name, state.message) == ("Alert", "anomaly drift")
    (event,) = emitted
    assert event.event == "ew.drift.alert"
    assert event.resource["ew.kind"] == "anomaly_drift"
    assert event.payload["words"].startswith("anomaly drift in all since 2026-W10")
