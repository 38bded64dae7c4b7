"""What is told to MLflow, before it is told."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from support.factory import held_result, make_result

from ew_pipeline.core.errors import EwError
from ew_pipeline.tracking.delivery import Delivery, read_delivery, write_delivery
from ew_pipeline.tracking.facts import facts_from, model_name, week_facts


def test_facts_survive_json():
    facts = week_facts(make_result(segments=("a", "b")))
    assert facts_from(json.loads(json.dumps(asdict(facts)))) == facts


@pytest.mark.parametrize(
    ("result", "status"),
    [(make_result(), "computed"), (make_result(shadow=True), "shadow"), (held_result(), "held")],
    ids=["computed", "shadow", "held"],
)
def test_the_status_is_what_the_gate_said(result, status):
    assert week_facts(result).status == status


def test_segments_add_up_to_the_week():
    facts = week_facts(make_result(stores=6, skus=9, segments=("a", "b", "c")))
    for name in ("flags", "expected_saving", "expected_cost", "expected_cost_ignoring", "pairs_scored"):
        total = sum(segment.metrics[name] for segment in facts.segments)
        assert total == pytest.approx(facts.metrics[name]), name


def test_numbers_that_are_not_finite_are_left_out():
    result = make_result()
    odd = replace(result.segments[0], null_gain=float("nan"), rank_curve=((1, float("-inf")), (2, -2.0)))
    (segment,) = week_facts(replace(result, segments=(odd,))).segments
    assert "null_gain" not in segment.metrics
    assert segment.curves["rank_curve.leave_one_out"] == ((2, -2.0),)


def test_model_names_are_never_shared():
    assert model_name("all") == "ew-detector"
    assert model_name("food") == "ew-detector-food"
    names = {model_name(segment) for segment in ("a b", "a/b", "a:b", "a-b", "ä", "")}
    assert len(names) == 6


def test_a_delivery_comes_back_as_it_was_written(tmp_path):
    delivery = Delivery(week_facts(make_result()), wanted="computed", artifacts={"report.html": "/r.html"})
    write_delivery(tmp_path, delivery)
    assert read_delivery(tmp_path) == delivery
    assert not delivery.settled


@pytest.mark.parametrize("content", ["", "{}", '{"facts": {}}', "[1]"])
def test_a_delivery_that_cannot_be_read_is_named(content, tmp_path):
    (tmp_path / "tracking.json").write_text(content)
    with pytest.raises(EwError, match=r"tracking\.json cannot be read"):
        read_delivery(tmp_path)
