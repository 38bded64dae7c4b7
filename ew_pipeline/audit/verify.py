"""Is everything as it was written? The ledger's chain, and every file it vouches for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ew_pipeline.audit.files import verify_live_copy, verify_run, vouched
from ew_pipeline.audit.findings import Finding
from ew_pipeline.audit.removed import Removed, removed_files
from ew_pipeline.audit.snapshots import verify_snapshot
from ew_pipeline.core.errors import EwError, name_some
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import ISO_WEEK
from ew_pipeline.intake.snapshot import is_kept
from ew_pipeline.ledger import Head, Ledger, Publication

OnPart = Callable[[str], None]


@dataclass(frozen=True)
class Verification:
    """What was looked at, and what was found. ``head``: write it down elsewhere, and pass it next time."""

    findings: tuple[Finding, ...]
    head: Head | None  # None: the ledger cannot be read any more
    publications: int
    files: int
    pruned: int  # files that are absent on purpose
    snapshots: int
    files_checked: bool = True

    @property
    def intact(self) -> bool:
        return not self.findings


def verify(
    ledger: Ledger,
    settings: Settings,
    *,
    files: bool = True,
    expected: Head | None = None,
    on_part: OnPart = lambda part: None,
) -> Verification:
    """Check the chain, and with ``files`` also runs, snapshots and live copies. Nothing is changed."""
    on_part("the ledger's chain")
    findings = [Finding.in_ledger(problem) for problem in ledger.verify(expected)]
    try:
        own = [one for one in ledger.publications() if one.kind == "publish"]
        removed = removed_files(ledger)
        if files:
            findings += _verify_files(ledger, settings, own, removed, on_part)
        return Verification(
            findings=tuple(findings),
            head=ledger.head(),
            publications=len(own),
            files=sum(len(vouched(one.files)) for one in own),
            pruned=sum(path in vouched(one.files) for one in own for path in removed.get(one.run_id, {})),
            snapshots=len(_used_snapshots(ledger)),
            files_checked=files,
        )
    except (EwError, ValueError, TypeError, KeyError, AttributeError):
        if not findings:
            raise
        # Rows so damaged that they cannot be read: the chain has already named them.
        return Verification(tuple(findings), None, 0, 0, 0, 0, files_checked=False)


def _verify_files(
    ledger: Ledger,
    settings: Settings,
    own: list[Publication],
    removed: Removed,
    on_part: OnPart,
) -> list[Finding]:
    findings: list[Finding] = []
    on_part("the files of the runs")
    folders = {run.run_id: run.folder for run in ledger.runs()}
    for publication in own:
        folder = folders.get(publication.run_id, publication.report.parent)
        findings += verify_run(publication, folder, removed.get(publication.run_id, {}))
    on_part("the snapshots")
    for data_hash, weeks in _used_snapshots(ledger).items():
        words = name_some(weeks, len(weeks))
        findings += verify_snapshot(settings.snapshots / data_hash, data_hash, words)
    on_part("the live copies")
    live = {str(publication.week): publication for publication in ledger.live()}
    for week, publication in live.items():
        findings += verify_live_copy(publication, settings.reports / week)
    if settings.reports.is_dir():
        shown = {path.name for path in settings.reports.iterdir() if ISO_WEEK.fullmatch(path.name)}
        for name in sorted(shown - set(live)):
            findings.append(
                Finding("inserted", "live copy", name, f"{settings.reports / name} shows nothing published")
            )
    return findings


def _used_snapshots(ledger: Ledger) -> dict[str, list[str]]:
    """Every snapshot that a result was computed on, with the weeks."""
    used: dict[str, list[str]] = {}
    for run in sorted(ledger.runs(), key=lambda run: run.week):
        if run.data_hash is not None and is_kept(run.data_hash) and run.pairs_scored is not None:
            weeks = used.setdefault(run.data_hash, [])
            weeks += [] if str(run.week) in weeks else [str(run.week)]
    return used
