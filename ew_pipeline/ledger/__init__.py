"""The ledger: what was run, what was published, on what data, by whom. The source of truth.

    with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
        publication = ledger.publish(result, by="ana", report=result.folder / "report.html")

SQLite by default, PostgreSQL by URL; the same tables (``tables``), the same calls, the same hashes. Rows are
only added, every row is a link of a hash chain (``chain``), and ``Ledger.verify`` finds what was changed.
"""

from ew_pipeline.ledger.chain import Head
from ew_pipeline.ledger.failures import LedgerError
from ew_pipeline.ledger.records import ConfigRole, InputKey, Problem, Publication, Run, RunInfo, Status
from ew_pipeline.ledger.store import Ledger

__all__ = [
    "ConfigRole",
    "Head",
    "InputKey",
    "Ledger",
    "LedgerError",
    "Problem",
    "Publication",
    "Run",
    "RunInfo",
    "Status",
]
