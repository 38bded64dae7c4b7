"""The automations that start the drift flow, and what the runbook says of its alerts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

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


@pytest.mark.parametrize("kind", ["anomaly drift", "composition change", "overdispersion change"])
def test_the_runbook_has_a_section_for_every_alert(kind):
    text = (ROOT / "infra" / "RUNBOOK.md").read_text(encoding="utf-8")
    section = text.partition(f"### {kind}")[2].partition("\n### ")[0]
    assert all(f"*{word}.*" in section for word in ("Meaning", "Look at", "Do"))
