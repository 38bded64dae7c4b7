"""Each reason to hold a week back, alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from publish.factory import make_result

from ew_pipeline.settings import RunConfig
from ew_pipeline.weekly.gate import gate

CONFIG = RunConfig(gate={"min_pairs": 5, "max_flagged_share": 0.5, "min_reporting_share": 0.7})


def checks(result=None, config=CONFIG, last_ranks=None, **segment):
    result = result or make_result()
    segments = tuple(replace(one, **segment) for one in result.segments)
    return {c.name: c for c in gate(segments, result.scores, result.coverage, config, last_ranks or {})}


def theta(**changes):
    return replace(make_result().segments[0].theta, **changes)


def failed(found):
    return [name for name, check in found.items() if not check.passed]


def test_a_healthy_week_passes_every_check():
    assert failed(checks()) == []


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("converged", {"converged": False}),
        ("theta inside its bounds", {"theta": theta(at_bound=True)}),
        ("theta identified", {"theta": theta(identified=False, reason="the likelihood is flat")}),
        ("anomalies needed", {"null_gain": 0.5}),
    ],
    ids=["converged", "bound", "identified", "null"],
)
def test_one_fault_of_the_fit_holds_the_week_back(name, segment):
    assert failed(checks(**segment)) == [name]


def test_why_theta_is_not_identified_is_passed_on():
    found = checks(theta=theta(identified=False, reason="the likelihood is flat"))
    assert "the likelihood is flat" in found["theta identified"].words


def test_theta_need_not_be_identified_when_the_drop_is_priced():
    config = CONFIG.model_copy(
        update={"detector": CONFIG.detector.model_copy(update={"probability": "drop"})}
    )
    assert failed(checks(config=config, theta=theta(identified=False, reason="flat"))) == []


def test_too_many_flags_hold_the_week_back():
    scores = make_result().scores.assign(flagged=True)
    found = checks(replace(make_result(), scores=scores))
    assert failed(found) == ["flagged share"]
    assert "100.0% of the scored pairs" in found["flagged share"].words


def test_too_few_pairs_hold_the_week_back():
    limits = CONFIG.gate.model_copy(update={"min_pairs": 13})
    assert failed(checks(config=CONFIG.model_copy(update={"gate": limits}))) == ["enough pairs"]


def test_too_few_stores_hold_the_week_back_and_the_missing_are_named():
    result = make_result()
    coverage = replace(
        result.coverage, stores_expected=10, stores_reporting=6, stores_missing=("S8", "S9", "S10")
    )
    found = checks(replace(result, coverage=coverage))
    assert failed(found) == ["enough stores"]
    assert found["enough stores"].words.endswith("missing: S8, S9, S10")


def test_a_jump_of_the_rank_holds_the_week_back_and_a_step_does_not():
    rank = make_result().segments[0].rank
    assert failed(checks(last_ranks={"all": rank + 3})) == []
    found = checks(last_ranks={"all": rank + 4})
    assert failed(found) == ["rank steady"]
    assert f"all {rank + 4} -> {rank}" in found["rank steady"].words


def test_the_segment_at_fault_is_named():
    result = make_result(segments=("bakery", "dairy"))
    bad = (result.segments[0], replace(result.segments[1], converged=False))
    found = {c.name: c for c in gate(bad, result.scores, result.coverage, CONFIG, {})}
    assert found["converged"].words == "1 of 2 segments did not converge: dairy"
