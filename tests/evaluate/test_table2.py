"""The real-data protocol of the paper on a small chain."""

from __future__ import annotations

import json

import numpy as np
import pytest
from chain_of_weeks import as_frame, simulated

from ew_pipeline.errors import DataError, UsageError
from ew_pipeline.evaluate.priced import NOTEBOOK_COSTS, PAPER_COSTS, priced_cost
from ew_pipeline.evaluate.table2 import priced_rows, table2


@pytest.mark.parametrize("costs", [PAPER_COSTS, NOTEBOOK_COSTS], ids=["paper", "notebook"])
def test_drawn_costs_match_the_exact_expectation(costs):
    rng = np.random.default_rng(0)
    anomaly = rng.random(2000) < 0.1
    p = np.clip(0.1 + 0.5 * anomaly + rng.normal(0, 0.05, 2000), 0.01, 0.99)
    (row, ignore) = priced_rows({"ours": p, "ignore": np.zeros(2000)}, anomaly, costs, 300, 0)
    assert row.cost == pytest.approx(priced_cost(p, anomaly, costs).mean(), rel=0.02)
    assert ignore.ratio == pytest.approx(1.0)
    assert row.cost_sd > 0


def test_the_document_has_every_policy_beside_the_printed_table(tmp_path, capsys):
    panel, _ = simulated(stores=8, skus=9, weeks=16)
    as_frame(panel).to_parquet(tmp_path / "s.parquet")
    table2(sales=str(tmp_path / "s.parquet"), instances=20, json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["week"] == panel.weeks[10]
    assert document["paper"]["DRMF"]["cost"] == 2.294
    assert {"drmf", "paper-practical", "calibrated-history", "ignore"} <= set(document["methods"])
    assert document["methods"]["ignore"]["ratio"] == pytest.approx(1.0)


def test_weeks_without_labels_and_unknown_variants_are_refused(tmp_path):
    panel, _ = simulated(stores=4, skus=5, weeks=13)
    as_frame(panel).to_parquet(tmp_path / "s.parquet")
    with pytest.raises(DataError, match="no pair has a label"):
        table2(sales=str(tmp_path / "s.parquet"), week=panel.weeks[-1])
    with pytest.raises(UsageError, match="choose one of text, code"):
        table2(sales=str(tmp_path / "s.parquet"), variant="paper")
