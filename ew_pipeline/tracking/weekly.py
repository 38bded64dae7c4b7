"""Track a week in MLflow, in a process of its own.

MLflow's ten seconds of imports and schema pass while the sales are read and fitted, and a server that hangs
can be given up. A failure costs the week nothing: it is marked as not tracked, and the next run sends it
(``tracking.delivery.deliver_all``).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.results import WeekResult
from ew_pipeline.tracking.child import Child, NoAnswer
from ew_pipeline.tracking.delivery import Delivery, read_delivery, write_delivery
from ew_pipeline.tracking.facts import week_facts

PATIENCE = 240.0  # seconds for MLflow to give the run an id: three tries of a server that does not answer
UPLOAD_PATIENCE = 600.0  # for all else; the model of 1e7 pairs is half a gigabyte
KEPT_WITH_THE_REPORT = ("check_list.csv", "check_list.json")


@dataclass(frozen=True)
class TrackedRun:
    """A week in MLflow; ``run_id`` is None and ``reason`` says why when it could not be tracked."""

    folder: Path
    run_id: str | None
    url: str | None = None
    reason: str | None = None

    @property
    def words(self) -> str:
        """For the line of the step."""
        return f"not tracked: {self.reason}" if self.run_id is None else f"run {self.run_id[:12]}"

    @property
    def links(self) -> dict[str, str]:
        """For the report."""
        return {"MLflow run": self.url} if self.url else {}


class Tracking:
    """MLflow in a process beside the run; it starts getting ready at once (or, not ``early``, when needed).

    No method raises because of MLflow. Close it (or use it in a ``with``); if not, it ends with this object.
    """

    def __init__(self, settings: Settings, patience: float = PATIENCE, *, early: bool = True) -> None:
        self.settings = settings
        self.patience = patience
        self._child: Child | None = Child(settings) if early else None

    def track(self, result: WeekResult, artifacts: Mapping[str, Path] | None = None) -> TrackedRun:
        """Send the computed week, with ``artifacts`` by their place in the run.

        It is back as soon as MLflow has given the run an id; models and pictures follow meanwhile.
        """
        facts = week_facts(result)
        delivery = Delivery(facts, wanted=facts.status, artifacts=_paths(artifacts or {}))
        return self._deliver(result.folder, delivery, whole=False)

    def finish(
        self,
        tracked: TrackedRun,
        status: str,
        report: Path | None = None,
        *,
        publication_id: str | None = None,
        artifacts: Mapping[str, Path] | None = None,
    ) -> TrackedRun:
        """Send how the week ended ("published", "held", "shadow") and its report and lists."""
        files = dict(artifacts or {})
        if report is not None:
            beside = {name: report.parent / name for name in KEPT_WITH_THE_REPORT}
            files |= {report.name: report, **{name: path for name, path in beside.items() if path.exists()}}
        self._wait_for_the_rest()  # it writes to the same record
        try:
            before = read_delivery(tracked.folder)
        except EwError as error:
            return replace(tracked, reason=error.message)
        delivery = replace(
            before,
            wanted=status,
            publication_id=publication_id,
            artifacts={**before.artifacts, **_paths(files)},
        )
        if tracked.run_id is None:  # MLflow was away a moment ago: the next run sends it
            with suppress(OSError):
                write_delivery(tracked.folder, delivery)
            return tracked
        return self._deliver(tracked.folder, delivery, whole=True)

    def confirm_published(self, folder: Path, publication_id: str, report: Path | None = None) -> None:
        """For a run that the ledger has published: send what a crash before ``finish`` left out, if any."""
        try:
            known = read_delivery(folder)
        except EwError:
            return  # it was never tracked, or its folder is gone
        if known.wanted != "published":
            self.finish(_tracked(folder, known), "published", report, publication_id=publication_id)

    def close(self) -> None:
        """Let it send what it is sending, and end the process beside."""
        self._wait_for_the_rest()
        self._stop()

    def _stop(self) -> None:
        if self._child is not None:
            self._child.stop()
            self._child = None

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_for_the_rest(self) -> None:
        try:
            if self._child is not None:
                self._child.rest(UPLOAD_PATIENCE)
        except NoAnswer:
            self._stop()  # what it did not send is in the record, to be sent later

    def _deliver(self, folder: Path, delivery: Delivery, *, whole: bool) -> TrackedRun:
        try:
            write_delivery(folder, delivery)
        except OSError as error:
            return TrackedRun(folder, delivery.mlflow_run_id, delivery.url, f"{error.strerror}: {folder}")
        if self._child is None or not self._child.alive:
            self._child = Child(self.settings)
        try:
            answer = self._child.ask(folder, UPLOAD_PATIENCE if whole else self.patience, whole=whole)
        except NoAnswer as error:
            self._stop()  # a process that is stuck is of no use to the next call either
            return TrackedRun(folder, delivery.mlflow_run_id, delivery.url, str(error))
        return TrackedRun(
            folder,
            answer.get("run_id") or delivery.mlflow_run_id,
            answer.get("url") or delivery.url,
            answer.get("reason"),
        )


def _tracked(folder: Path, delivery: Delivery) -> TrackedRun:
    return TrackedRun(folder, delivery.mlflow_run_id, delivery.url, delivery.reason)


def _paths(artifacts: Mapping[str, Path]) -> dict[str, str]:
    return {place: str(path.absolute()) for place, path in artifacts.items()}
