"""One instance, one record: what it holds, and that seeds decide everything but the time."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from ew_pipeline.core.errors import FitError, UsageError
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.studies.ensemble import EnsembleSettings
from ew_pipeline.studies.experiments.instance import InstanceTask, run_instance
from ew_pipeline.studies.experiments.record import Record

SMALL = EnsembleSettings(n=20, m=24, rank=1, mean=5.0, alpha=0.1, anomaly_rate=0.15)


def task(method: str = "variational", **changes) -> InstanceTask:
    return replace(InstanceTask("small", SMALL, method, seed=3, instance=1), **changes)


def record(of: InstanceTask) -> Record:
    return Record.from_json(run_instance(of))


@pytest.fixture(scope="module")
def variational() -> Record:
    return record(task())


def untimed(of: Record) -> dict[str, object]:
    return asdict(replace(of, cpu_seconds=0.0))


def test_the_same_task_gives_the_same_record(variational):
    assert untimed(record(task())) == untimed(variational)


def test_an_instance_does_not_depend_on_the_others_of_its_study():
    drawn = [task(instance=k).draw() for k in (0, 1)]
    again = task(instance=1).draw()
    np.testing.assert_array_equal(drawn[1].sales.counts, again.sales.counts)
    assert drawn[0].sales.n_observed != again.sales.n_observed
    assert task(seed=4).draw().sales.n_observed != again.sales.n_observed


def test_all_methods_meet_the_same_instance(variational):
    ignored = record(task("ignore"))
    for name in ("n_observed", "cost_ideal", "cost_ignore", "auc_ideal", "true_alpha", "true_anomaly_rate"):
        assert getattr(ignored, name) == getattr(variational, name)


def test_ignoring_costs_what_ignoring_costs_and_flags_nothing():
    ignored = record(task("ignore"))
    assert (ignored.above_ignore, ignored.flagged_share, ignored.auc) == (0.0, 0.0, 0.5)
    assert ignored.regret > 0
    assert ignored.theta is None


def test_a_clear_instance_is_solved_better_than_by_ignoring_it(variational):
    assert 0.0 <= variational.regret < -variational.above_ignore
    assert variational.tier == "variational"
    assert variational.error_max is not None
    assert variational.error_max <= variational.error_frobenius


def test_only_the_default_carries_algorithm_2_and_calibration(variational):
    assert (variational.rates, variational.calibration) == ((), None)
    default = record(task("default"))
    assert [(rate.gamma, rate.z) for rate in default.rates] == [(0.05, 0), (0.05, 1), (0.1, 0), (0.1, 1)]
    for rate in default.rates:
        assert 0 <= rate.fpr <= 1
        if rate.fpr <= rate.gamma:
            assert rate.tpr <= rate.tpr_ideal + 1e-12  # pi*(gamma) is the best at that rate
    assert default.calibration is not None
    assert sum(default.calibration.count) == default.n_observed


def test_costs_of_correlated_anomalies_are_those_that_happened():
    whole_stores = replace(SMALL, anomalies="store")
    drawn = task("ignore", settings=whole_stores).draw()
    ignored = record(task("ignore", settings=whole_stores))
    assert ignored.cost == pytest.approx(np.mean(drawn.costs_missed * drawn.truth.anomalous))


def test_a_fit_without_an_answer_is_a_record_that_flagged_nothing(monkeypatch):
    def refuse(self, sales, level=None):
        raise FitError("no demand", "more data")

    monkeypatch.setattr(EntrywiseDetector, "fit", refuse)
    failed = record(task())
    assert failed.failure == "no demand\nNext: more data"
    assert (failed.above_ignore, failed.theta) == (0.0, None)


def test_an_unknown_method_is_refused():
    with pytest.raises(UsageError, match="choose from default"):
        task("magic")
