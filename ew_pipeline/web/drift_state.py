"""Drift as the ledger has it now, judged again when the ledger has changed: charts take a second to draw."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from ew_pipeline.core.settings import DriftSettings, Settings
from ew_pipeline.drift.page import render_page
from ew_pipeline.drift.run import DriftReport, judge_drift
from ew_pipeline.ledger import Head, Ledger


@dataclass
class DriftState:
    """One at a time: matplotlib's settings are the process's, and the second to ask finds it done."""

    settings: Settings
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _head: Head | None = None
    _report: DriftReport | None = None
    _page: str | None = None

    def report(self, ledger: Ledger) -> DriftReport | None:
        """None before the first published week."""
        with self._lock:
            return self._fresh(ledger)

    def page(self, ledger: Ledger) -> str | None:
        with self._lock:
            report = self._fresh(ledger)
            if report is not None and self._page is None:
                self._page = render_page(report.assessment, report.verdicts, report.alerts)
            return self._page

    def _fresh(self, ledger: Ledger) -> DriftReport | None:
        head = ledger.head()
        if head != self._head:
            self._report, self._page = judge_drift(ledger, self.settings, DriftSettings()), None
            self._head = head
        return self._report


def in_one_line(report: DriftReport | None) -> str:
    """For the first page."""
    if report is None:
        return "nothing to follow yet"
    waiting = len(report.open_alerts)
    if waiting:
        return f"{report.verdict}, {waiting} open alert{'' if waiting == 1 else 's'}"
    return f"{report.verdict}: {report.verdicts[0].words}" if report.verdicts else report.verdict
