"""On real sales the weekly run prices what the backtest evaluates; skipped where the data are not at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.chain import run_plainly

from ew_pipeline.backtest.history import read_history
from ew_pipeline.backtest.policies import Calibrated
from ew_pipeline.backtest.registry import default_policy
from ew_pipeline.backtest.view import PastView, RuleLabels
from ew_pipeline.core.week import Week

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "analgesics" / "weekly.parquet"

pytestmark = pytest.mark.flow


@pytest.mark.skipif(not DATA.is_file(), reason="the analgesics data are not beside the checkout")
def test_a_late_week_of_analgesics_is_priced_by_the_backtests_default_policy(tmp_path):
    sales = pd.read_parquet(DATA, columns=["store_id", "sku_id", "week", "units", "promo"])
    weeks = {number: str(Week(2025, 1).shift(int(number) - 1)) for number in sales["week"].unique()}
    sales = sales.astype({"store_id": str, "sku_id": str}).assign(week=sales["week"].map(weeks))
    place, week = tmp_path / "sales.parquet", str(Week(2025, 47))
    sales.to_parquet(place, index=False)

    outcome = run_plainly(tmp_path / "home", {"sales": str(place)}, week, changes={"probability": "auto"})
    assert outcome.status == "published"
    result = outcome.result
    assert result.pricing.calibrated

    panel = read_history(str(place)).panel
    view = PastView(panel, panel.index(week), RuleLabels("pair"))
    score = Calibrated(default_policy(history=True, calibrate=True)).score(view)
    by_row = np.full(panel.n_pairs, np.nan)
    by_row[view.pairs] = score.probability
    rows = panel.rows_of(result.scores["store_id"].astype(str), result.scores["sku_id"].astype(str))
    np.testing.assert_array_equal(result.scores["anomaly_probability"], by_row[rows])
    assert score.calibration == result.pricing.calibration
    assert result.pricing.calibration.costs[result.pricing.form] < 0.3  # of doing nothing, on held-back weeks
