"""Each reason to hold a week back, alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.factory import make_result

from ew_pipeline.backtest.calibration import Calibration
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.infer.pricing import Pricing
from ew_pipeline.weekly.gate import gate

CONFIG = RunConfig(gate={"min_pairs": 5, "max_flagged_share": 0.5, "min_reporting_share": 0.7})


def checks(result=None, config=CONFIG, last_ranks=None, pricing=None, **segment):
    result = result or make_result()
    segments = tuple(replace(one, **segment) for one in result.segments)
    priced = pricing or Pricing()
    found = gate(segments, result.totals, result.coverage, config, last_ranks or {}, priced)
    return {c.name: c for c in found}


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


@pytest.mark.parametrize("form", ["drop", "history", "many + history"])
def test_theta_need_not_be_identified_when_the_posterior_is_not_priced(form):
    unknown = theta(identified=False, reason="flat")
    found = checks(pricing=Pricing(asked="auto", form=form), theta=unknown)
    assert failed(found) == []
    assert form in found["theta identified"].words
    assert failed(checks(pricing=Pricing(asked="auto"), theta=unknown)) == ["theta identified"]


def test_where_theta_is_not_priced_it_may_lie_on_its_bound():
    assert failed(checks(pricing=Pricing(asked="auto", form="history"), theta=theta(at_bound=True))) == []


def calibration(**changes):
    fields = {
        "rule": "pair",
        "weeks": ("2026-W20", "2026-W21"),
        "pairs": 800,
        "anomalies": 60,
        "accepted": True,
        "chosen": "many",
        "reason": "",
        "costs": {"many": 0.4, "history": 0.5, "trailing": 0.6, "trailing-sku": 0.45, "nothing": 1.0},
    }
    return Calibration(**{**fields, **changes})


@pytest.mark.parametrize(
    ("form", "changes", "passed", "words"),
    [
        ("many", {}, True, "costs 0.40 of doing nothing, the better trailing rule 0.45"),
        ("history", {}, False, "the trailing-sku rule 0.45: it should not be used here"),
        ("many", {"costs": {"many": 1.2, "nothing": 1.0}}, False, "should not be used here"),
        ("nothing", {}, False, "every form costs more than doing nothing"),
        ("many", {"anomalies": 3, "costs": {"many": 1.2, "nothing": 1.0}}, True, "too few to judge"),
        ("history", {"weeks": (), "costs": {}}, True, "not known"),
    ],
    ids=["pays", "a rule is cheaper", "nothing is cheaper", "nothing pays", "few anomalies", "no labels"],
)
def test_what_is_priced_must_have_paid_on_past_weeks(form, changes, passed, words):
    found = checks(pricing=Pricing("auto", form, calibration=calibration(**changes)))
    assert (found["pays on past weeks"].passed, failed(found)) == (
        passed,
        [] if passed else ["pays on past weeks"],
    )
    assert words in found["pays on past weeks"].words


def test_what_has_paid_on_past_weeks_need_not_beat_the_model_without_anomalies():
    paid, unknown = calibration(), calibration(weeks=(), costs={})
    assert failed(checks(pricing=Pricing("auto", "many", calibration=paid), null_gain=0.5)) == []
    found = checks(pricing=Pricing("auto", "history", calibration=unknown), null_gain=0.5)
    assert failed(found) == ["anomalies needed"]


def test_another_form_than_was_asked_for_holds_the_week_back():
    found = checks(
        pricing=Pricing(
            "calibrated", "history", "the drop is priced", calibration=calibration(accepted=False)
        )
    )
    assert "priced as asked" in failed(found)
    assert found["priced as asked"].words == "calibrated was asked for, but the drop is priced"


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
    alone = {rank: 1.0}
    assert failed(checks(last_ranks={"all": rank + 3}, rank_weights=alone)) == []
    found = checks(last_ranks={"all": rank + 4}, rank_weights=alone)
    assert failed(found) == ["rank steady"]
    assert f"all {rank + 4} -> {rank}" in found["rank steady"].words


def test_a_rank_that_still_carries_weight_has_not_been_left():
    rank = make_result().segments[0].rank
    last = {"all": rank + 4}
    assert failed(checks(last_ranks=last, rank_weights={rank: 0.85, rank + 4: 0.15})) == []
    assert failed(checks(last_ranks=last, rank_weights={rank: 0.95, rank + 4: 0.05})) == ["rank steady"]


def test_the_segment_at_fault_is_named():
    result = make_result(segments=("bakery", "dairy"))
    bad = (result.segments[0], replace(result.segments[1], converged=False))
    found = {c.name: c for c in gate(bad, result.totals, result.coverage, CONFIG, {}, Pricing())}
    assert found["converged"].words == "1 of 2 segments did not converge: dairy"
