"""A backfill in two worker processes, each with its own MLflow."""

from __future__ import annotations

import pandas as pd
import pytest
from support.chain import QUICK, sources, write_chain

from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger
from ew_pipeline.weekly.backfill import backfill_weeks
from ew_pipeline.weekly.request import make_request

WEEKS = Week(2026, 6).through(Week(2026, 8))
COLUMNS = ["store_id", "sku_id", "units", "expected_units", "anomaly_probability"]
pytestmark = pytest.mark.server


def test_weeks_side_by_side_give_the_same_flags(tmp_path):
    tables = write_chain(tmp_path / "chain")
    flags = []
    for parallel in (1, 2):
        settings = Settings(home=tmp_path / f"home-{parallel}")
        asked = {**sources(tables), "override_why": "a test"}
        request = make_request(settings, week=str(WEEKS[0]), changes=QUICK, **asked)
        found = backfill_weeks(request, WEEKS, settings, parallel=parallel)
        assert [done.status for done in found.weeks] == ["published"] * 3
        with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
            flags.append([ledger.flags(ledger.current(week).id)[COLUMNS] for week in WEEKS])
    for one, other in zip(*flags, strict=True):
        pd.testing.assert_frame_equal(one, other, rtol=1e-9)
