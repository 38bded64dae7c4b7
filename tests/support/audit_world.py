"""A small home with published weeks, their snapshots, models, lists and live copies: for tests of the audit.

Import it as ``from support.audit_world import World`` (``tests/`` is on the path of every test).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from support.factory import make_result

from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.intake.snapshot import SnapshotWriter
from ew_pipeline.ledger import Ledger, Publication
from ew_pipeline.outputs.check_list import write_check_lists
from ew_pipeline.results import WeekResult
from ew_pipeline.weekly.attempt import show_live


@dataclass
class World:
    """``settings`` of the home and its open ledger."""

    settings: Settings
    ledger: Ledger

    @classmethod
    def make(cls, home: Path, url: str | None = None) -> World:
        settings = Settings(home=home, database_url=url, actor="ana", mlflow_tracking_uri=None)
        return cls(settings, Ledger.open(settings.ledger_url, home=settings.root))

    def compute(self, week: str, seed: int = 0, **arguments: Any) -> WeekResult:
        """A computed week with all its files, not yet published."""
        data_hash = self.keep_snapshot(Week.parse(week), seed)
        result = make_result(week, home=self.settings.root, seed=seed, data_hash=data_hash, **arguments)
        for segment in result.segments:
            np.savez(segment.model / "arrays.npz", left=np.arange(4.0))
        write_check_lists(result, result.folder)
        (result.folder / "tracking.json").write_text('{"sent": null}')
        (result.folder / "steps.log").write_text("began\n")
        return result

    def publish(self, week: str, seed: int = 0, by: str = "ana", **arguments: Any) -> Publication:
        result = self.compute(week, seed, **arguments)
        publication = self.ledger.publish(result, by=by, report=result.folder / "report.html")
        show_live(publication, self.settings)
        return publication

    def keep_snapshot(self, week: Week, seed: int = 0) -> str:
        """Two weeks of sales of a few pairs, and costs."""
        with SnapshotWriter(self.settings, week) as writer:
            for part in (week.shift(-1), week):
                writer.add(
                    "sales",
                    pd.DataFrame(
                        {
                            "store_id": ["S000", "S000", "S001"],
                            "sku_id": ["K000", "K001", "K000"],
                            "week": str(part),
                            "units": [seed, 4, 7],
                            "promo": [0, 1, 0],
                        }
                    ),
                    part=str(part),
                )
            writer.add(
                "costs",
                pd.DataFrame(
                    {
                        "store_id": pd.Series([None], dtype="object"),
                        "sku_id": pd.Series([None], dtype="object"),
                        "cost_false_alarm": [1.0],
                        "cost_missed": [3.0],
                    }
                ),
            )
            return writer.finish().data_hash

    def run_folder(self, publication: Publication) -> Path:
        return self.settings.runs / publication.run_id

    def snapshot(self, publication: Publication) -> Path:
        return self.settings.snapshots / publication.data_hash
