"""Store checks as what a calibration learns from: only when asked for, only when there are enough."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.chain import QUICK
from support.chain_of_weeks import as_frame, simulated
from support.factory import make_result

from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.expect.fit import fit_segments
from ew_pipeline.intake.assemble import prepare
from ew_pipeline.intake.read import ingest
from ew_pipeline.ledger import Ledger
from ew_pipeline.ledger.records import now
from ew_pipeline.results import WeekRequest
from ew_pipeline.weekly.price import price
from ew_pipeline.weekly.request import change_config, earlier_checks

PANEL, WRONG = simulated(stores=10, skus=12, weeks=24)
WEEK = Week.parse(PANEL.weeks[-1])
CONFIG = change_config(
    RunConfig(), {**QUICK, "probability": "auto", "calibration_labels": "checks", "calibration_weeks": 20}
)


def checks_of(share: float) -> pd.DataFrame:
    """What stores found in the last weeks before: of every pair, or of a share of them."""
    rng = np.random.default_rng(0)
    row, week = np.nonzero(rng.random(WRONG.shape) < share)
    kept = (week >= 12) & (week < 23)
    row, week = row[kept], week[kept]
    return pd.DataFrame(
        {
            "store_id": PANEL.store_ids[PANEL.store[row]],
            "sku_id": PANEL.sku_ids[PANEL.sku[row]],
            "week": np.array(PANEL.weeks)[week],
            "wrong": WRONG[row, week].astype(np.uint8),
            "weight": np.where(WRONG[row, week], 1.0, 4.0),
        }
    )


def priced(folder, checks):
    folder.mkdir(exist_ok=True)
    as_frame(PANEL).to_parquet(folder / "sales.parquet", index=False)
    request = WeekRequest(WEEK, str(folder / "sales.parquet"), config=CONFIG)
    settings = Settings(home=folder / "home")
    _, snapshot = ingest(request, settings, settings.runs / "one", checks)
    prepared = prepare(snapshot, WEEK, CONFIG)
    fitted = fit_segments(prepared, CONFIG, folder / "model")
    return snapshot, prepared, price(prepared, fitted, CONFIG).pricing


def test_enough_checks_are_learnt_from_and_are_an_input_of_the_week(tmp_path):
    found = checks_of(1.0)
    snapshot, prepared, pricing = priced(tmp_path / "all", found)
    known = prepared.past.checks
    assert known.known.sum() == len(found)
    assert known.anomaly.sum() == found["wrong"].sum()
    assert known.weight[known.known].mean() == pytest.approx(1.0)
    assert (pricing.labels, pricing.calibration.rule) == ("checks", "truth")
    assert pricing.calibration.anomalies >= 25
    fewer, _, _ = priced(tmp_path / "fewer", found.iloc[:-1])
    assert fewer.data_hash != snapshot.data_hash


def test_few_checks_are_not_learnt_from_and_that_is_said(tmp_path):
    found = checks_of(0.05)
    _, _, pricing = priced(tmp_path, found)
    assert (pricing.labels, pricing.calibration.rule) == ("pair", "pair")
    assert (
        f"{found['wrong'].sum()} confirmed and {(1 - found['wrong']).sum()} healthy checks" in pricing.words
    )


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", home=tmp_path) as opened:
        yield opened


def add_check(ledger, week, sku, outcome, **changes):
    row = {
        "store_id": "S000",
        "sku_id": sku,
        "week": week,
        "outcome": outcome,
        "source": "flag",
        "recorded_at": now(),
        "recorded_by": "ana",
        "publication_id": 1,
        "inclusion_probability": 1.0,
    }
    ledger.append("checks", [{**row, **changes}])


def test_only_decided_checks_of_the_weeks_before_that_a_publication_asked_for_are_taken(ledger, tmp_path):
    week = Week(2026, 34)
    result = make_result(week.shift(-2), home=tmp_path)
    ledger.publish(result, by="ana", report=result.folder / "report.html")
    add_check(ledger, week.shift(-2), "K000", "confirmed")
    add_check(ledger, week.shift(-2), "K001", "healthy", source="random", inclusion_probability=0.02)
    add_check(ledger, week.shift(-2), "K002", "not_checked")
    add_check(ledger, week.shift(-2), "K003", "healthy", publication_id=None)
    add_check(ledger, week, "K000", "confirmed")
    add_check(ledger, week.shift(-60), "K000", "confirmed")
    found = earlier_checks(ledger, week, RunConfig(calibration_labels="checks"))
    assert found[["sku_id", "wrong", "weight"]].to_numpy().tolist() == [["K000", 1, 1.0], ["K001", 0, 50.0]]


def test_without_being_asked_for_no_check_is_taken(ledger):
    assert earlier_checks(ledger, Week(2026, 34), RunConfig()) is None
