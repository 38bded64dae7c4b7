"""The drift flow on a Prefect server, and the automations that start it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.drift_world import TestWeek, publish_weeks

from ew_pipeline.core.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


def automations():
    return yaml.safe_load((ROOT / "infra" / "automations.yaml").read_text(encoding="utf-8"))["deployments"]


def test_the_automations_are_ones_that_prefect_takes():
    from prefect.events import DeploymentEventTrigger

    for deployment in automations():
        (trigger,) = deployment["triggers"]
        assert DeploymentEventTrigger.model_validate(trigger).expect == set(trigger["expect"])


def test_the_automations_name_flows_and_the_event_that_exist():
    from flows import drift as flows

    by_name = {one["name"]: one for one in automations()}
    for name in ("drift", "drift-response"):
        file, _, function = by_name[name]["entrypoint"].partition(":")
        assert (ROOT / file).samefile(flows.__file__)
        assert getattr(flows, function).name == name
    (answer,) = by_name["drift-response"]["triggers"]
    assert answer["expect"] == [flows.EVENT]
    assert set(answer["parameters"]) == {"alert_id"}


@pytest.mark.server
@pytest.mark.slow("starts a Prefect server")
def test_the_flow_raises_the_alert_as_an_event_and_ends_in_the_state_alert(tmp_path, monkeypatch):
    from prefect.events.utilities import emit_event
    from prefect.testing.utilities import prefect_test_harness

    from flows import drift as flows

    publish_weeks(Settings(home=tmp_path), [TestWeek()] * 9 + [TestWeek(anomaly_rate=0.1)] * 3)
    monkeypatch.setenv("EW_HOME", str(tmp_path))
    monkeypatch.delenv("EW_ALERT_URL", raising=False)
    emitted = []

    def keep(**event):
        emitted.append(emit_event(**event))
        return emitted[-1]

    monkeypatch.setattr(flows, "emit_event", keep)
    with prefect_test_harness(server_startup_timeout=180):
        state = flows.drift(return_state=True)
        flows.drift_response(alert_id=emitted[0].payload["alert_id"])
    assert (state.name, state.message) == ("Alert", "anomaly drift")
    (event,) = emitted
    assert event.event == "ew.drift.alert"
    assert event.resource["ew.kind"] == "anomaly_drift"
    assert event.payload["words"].startswith("anomaly drift in all since 2026-W10")


@pytest.mark.parametrize("kind", ["anomaly drift", "composition change", "overdispersion change"])
def test_the_runbook_has_a_section_for_every_alert(kind):
    text = (ROOT / "infra" / "RUNBOOK.md").read_text(encoding="utf-8")
    section = text.partition(f"### {kind}")[2].partition("\n### ")[0]
    assert all(f"*{word}.*" in section for word in ("Meaning", "Look at", "Do"))
