"""The real-data protocol of the paper on a small chain."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.chain_of_weeks import as_frame, simulated

from ew_pipeline.backtest.priced import NOTEBOOK_COSTS, PAPER_COSTS, priced_cost
from ew_pipeline.backtest.simple_policies import TrailingRule
from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.studies.table2 import build, drawn_costs, table2


@pytest.mark.parametrize("costs", [PAPER_COSTS, NOTEBOOK_COSTS], ids=["paper", "notebook"])
def test_drawn_costs_match_the_exact_expectation(costs):
    rng = np.random.default_rng(0)
    anomaly = rng.random(2000) < 0.1
    p = np.clip(0.1 + 0.5 * anomaly + rng.normal(0, 0.05, 2000), 0.01, 0.99)
    drawn = {
        name: drawn_costs(score, anomaly, costs, 300, seed=0)
        for name, score in (("ours", p), ("ignore", np.zeros(2000)))
    }
    row, ignore = build(drawn)
    assert row.cost == pytest.approx(priced_cost(p, anomaly, costs).mean(), rel=0.02)
    assert ignore.ratio == pytest.approx(1.0)
    assert row.cost_sd > 0


def test_the_document_has_every_policy_beside_the_printed_table(tmp_path, capsys):
    panel, _ = simulated(stores=8, skus=9, weeks=16)
    as_frame(panel).to_parquet(tmp_path / "s.parquet")
    table2(sales=str(tmp_path / "s.parquet"), instances=20, jobs=0, out=tmp_path / "out", json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["week"] == panel.weeks[10]
    assert document["paper"]["DRMF"]["cost"] == 2.294
    assert {"drmf", "paper-practical", "calibrated-history", "ignore"} <= set(document["methods"])
    assert document["methods"]["ignore"]["ratio"] == pytest.approx(1.0)
    assert (tmp_path / "out" / "table2.png").read_bytes().startswith(b"\x89PNG")


def test_a_stopped_study_scores_only_what_is_missing_and_other_sales_are_scored_anew(
    tmp_path, capsys, monkeypatch
):
    panel, _ = simulated(stores=5, skus=6, weeks=14)
    frame = as_frame(panel)
    frame.to_parquet(tmp_path / "s.parquet")
    scored: list[str] = []
    original = TrailingRule.score

    def counted(self, view):
        scored.append(self.name)
        return original(self, view)

    monkeypatch.setattr(TrailingRule, "score", counted)

    def run(file: str) -> dict:
        table2(
            sales=str(tmp_path / file),
            policies="trailing",
            instances=5,
            jobs=0,
            out=tmp_path / "o",
            json=True,
        )
        return json.loads(capsys.readouterr().out)["methods"]

    first = run("s.parquet")
    assert scored == ["trailing", "trailing-sku"]
    log = tmp_path / "o" / "table2.jsonl"
    log.write_text("".join(line for line in log.open() if '"trailing"' not in line))
    assert run("s.parquet") == first
    assert scored == ["trailing", "trailing-sku", "trailing"]
    frame.assign(units=frame["units"] + 1).to_parquet(tmp_path / "other.parquet")
    assert run("other.parquet") != first
    assert len(scored) == 5


def test_weeks_without_labels_and_unknown_variants_are_refused(tmp_path):
    panel, _ = simulated(stores=4, skus=5, weeks=13)
    as_frame(panel).to_parquet(tmp_path / "s.parquet")
    with pytest.raises(DataError, match="no pair has a label"):
        table2(sales=str(tmp_path / "s.parquet"), week=panel.weeks[-1])
    with pytest.raises(UsageError, match="choose one of text, code"):
        table2(sales=str(tmp_path / "s.parquet"), variant="paper")
