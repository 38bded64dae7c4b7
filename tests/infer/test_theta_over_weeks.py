"""This week's theta with the weeks before as a prior: known answers, and where it must not lean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from support.factory import make_result

from ew_pipeline.infer.theta import HALF_WIDTH, lean_on, over_weeks
from ew_pipeline.ledger.rows import theta_columns
from ew_pipeline.method.theta import Theta


def theta(rate: float, error: float, alpha: float = 0.2, **changes) -> Theta:
    """Log-odds error of p_A ``error``; alpha is known well."""

    def interval(value: float, sd: float) -> tuple[float, float]:
        return tuple(float(end) for end in expit(logit(value) + np.array([-1, 1]) * HALF_WIDTH * sd))

    return Theta(alpha, rate, interval(alpha, 0.05), interval(rate, error), False, True, **changes)


def row(week: int, value: Theta, segment: str = "all", anomaly: str | None = "exponential") -> dict:
    return {
        "week": f"2026-W{week:02d}",
        "segment": segment,
        "anomaly": anomaly,
        "identified": value.identified,
        "at_bound": value.at_bound,
        **theta_columns(value),
    }


def test_a_week_that_knows_nothing_takes_the_mean_of_the_weeks_before():
    before = [theta(rate, 0.1) for rate in (0.04, 0.05, 0.06, 0.05)]
    leant = lean_on(theta(0.3, 50.0), before)
    assert leant.anomaly_rate == pytest.approx(0.05, abs=0.002)
    low, high = leant.anomaly_rate_interval
    assert 0.03 < low < 0.05 < high < 0.08


def test_equal_errors_meet_half_way_when_the_weeks_never_differ():
    # Three equal weeks with a large error: mu known to 0.6 / sqrt(3), no movement, own error the same.
    before = [theta(0.05, 0.6)] * 3
    leant = lean_on(theta(0.1, 0.6 / np.sqrt(3)), before)
    middle = (logit(0.05) + logit(0.1)) / 2
    assert logit(leant.anomaly_rate) == pytest.approx(middle)
    width = logit(leant.anomaly_rate_interval[1]) - logit(leant.anomaly_rate_interval[0])
    assert width == pytest.approx(2 * HALF_WIDTH * 0.6 / np.sqrt(3) / np.sqrt(2))


def test_how_much_the_weeks_move_widens_the_prior():
    # Log-odds -1, 0 and 1, well known: mu 0 with variance 1/3, and the next week one more step of variance 1.
    before = [theta(float(expit(odds)), 0.01) for odds in (-1.0, 0.0, 1.0)]
    leant = lean_on(theta(float(expit(2.0)), 1.0), before)
    assert logit(leant.anomaly_rate) == pytest.approx(2.0 / (1.0 + 1.0 / (1.0 + 1.0 / 3.0)), rel=1e-3)


def test_a_chain_that_moves_much_leaves_the_week_its_own_estimate():
    calm = lean_on(theta(0.2, 0.3), [theta(rate, 0.1) for rate in (0.05, 0.051, 0.049)])
    moving = lean_on(theta(0.2, 0.3), [theta(rate, 0.1) for rate in (0.01, 0.05, 0.25)])
    assert calm.anomaly_rate < 0.08
    assert moving.anomaly_rate > 0.15


@given(
    own=st.tuples(st.floats(0.005, 0.5), st.floats(0.05, 3.0)),
    before=st.lists(st.tuples(st.floats(0.005, 0.5), st.floats(0.05, 1.0)), min_size=3, max_size=12),
)
def test_the_estimate_lies_between_and_is_surer_than_the_week_alone(own, before):
    week, earlier = theta(*own), [theta(*one) for one in before]
    leant = lean_on(week, earlier)
    rates = [week.anomaly_rate, *(one.anomaly_rate for one in earlier)]
    assert min(rates) - 1e-9 <= leant.anomaly_rate <= max(rates) + 1e-9

    def width(one: Theta) -> float:
        return float(np.diff(logit(np.array(one.anomaly_rate_interval)))[0])

    assert width(leant) <= width(week) + 1e-9


def test_only_weeks_that_know_the_same_theta_are_leant_on():
    result = make_result()
    good = [row(week, theta(0.05, 0.1)) for week in (30, 31, 32)]
    strange = [
        row(29, theta(0.4, 0.1), anomaly="thinning"),
        row(28, replace(theta(0.4, 0.1), identified=False, reason="flat")),
        row(27, replace(theta(0.4, 0.1), at_bound=True)),
        row(26, theta(0.4, 0.1), segment="dairy"),
    ]
    pooled = [row(week, theta(0.05, 0.1), segment="pooled", anomaly=None) for week in (30, 31)]
    found = over_weeks(result.segments, result.pooled, pd.DataFrame([*strange, *good, *pooled]))
    assert set(found) == {"all"}  # two weeks are too few for the pooled one
    assert found["all"].weeks == 3
    assert found["all"].theta == lean_on(result.segments[0].theta, [theta(0.05, 0.1)] * 3)


def test_it_is_published_beside_the_weeks_own(ledger_with_weeks):
    ledger, result = ledger_with_weeks
    rows = ledger.segments(result.run_id).set_index("segment")
    assert rows.loc["all", "anomaly_rate"] == result.segments[0].theta.anomaly_rate
    assert rows.loc["all", "anomaly_rate_over_weeks"] == result.over_weeks["all"].theta.anomaly_rate
    assert rows.loc["all", "weeks_pooled"] == 3
    assert rows["alpha_over_weeks"].notna().all()


@pytest.fixture
def ledger_with_weeks(tmp_path):
    from ew_pipeline.core.week import Week
    from ew_pipeline.ledger import Ledger

    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", home=tmp_path) as ledger:
        for number in (30, 31, 32):
            earlier = make_result(Week(2026, number), home=tmp_path)
            ledger.publish(earlier, by="ana", report=earlier.folder / "report.html")
        result = make_result(Week(2026, 33), home=tmp_path)
        before = ledger.segments_series(Week(2026, 32), 26)
        result = replace(result, over_weeks=over_weeks(result.segments, result.pooled, before))
        ledger.publish(result, by="ana", report=result.folder / "report.html")
        yield ledger, result
