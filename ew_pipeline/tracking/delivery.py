"""What is still to be told to MLflow about a run, kept beside the run until it is.

A run writes ``tracking.json`` into its folder before anything is sent; ``deliver`` sends what is left of it
and says so in the file. Called again it sends nothing twice, so a week that could not be tracked is made good
by ``deliver_all``, which every later run calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.tracking.database import locked
from ew_pipeline.tracking.facts import WeekFacts, facts_from
from ew_pipeline.tracking.send import SentRun, send_status, send_week
from ew_pipeline.tracking.store import TrackingError

FILE = "tracking.json"
LOCK = ".tracking.lock"


@dataclass(frozen=True)
class Delivery:
    """The facts of a run and how far they got.

    ``wanted`` is the status that MLflow should show, ``sent`` the one it shows; ``artifacts`` are files and
    folders, by their place in the MLflow run, that are not there yet.
    """

    facts: WeekFacts
    wanted: str
    sent: str | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    publication_id: str | None = None
    mlflow_run_id: str | None = None
    url: str | None = None
    reason: str | None = None  # why it was not sent

    @property
    def settled(self) -> bool:
        return self.sent == self.wanted and not self.artifacts


def write_delivery(folder: Path, delivery: Delivery) -> None:
    """Keep it in the run's folder, whole or not at all."""
    part = folder / f".{FILE}.part"
    part.write_text(json.dumps(asdict(delivery), indent=1, ensure_ascii=False), encoding="utf-8")
    part.replace(folder / FILE)


def read_delivery(folder: Path) -> Delivery:
    """Read it back."""
    path = folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Delivery(**{**found, "facts": facts_from(found["facts"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EwError(f"{path} cannot be read: {error}.", "run the week again.") from error


def deliver(folder: Path, settings: Settings, on_run: Callable[[SentRun], None] | None = None) -> Delivery:
    """Send what is left to send of the run in ``folder``; ``TrackingError`` when MLflow cannot take it.

    ``on_run`` is told the MLflow run as soon as there is one, long before all is sent.
    """
    with locked(folder / LOCK):  # a later run may be catching up on this one
        delivery = read_delivery(folder)
        if delivery.settled:
            return delivery
        facts, wanted = delivery.facts, delivery.wanted
        artifacts = {place: Path(path) for place, path in delivery.artifacts.items()}
        try:
            run = send_week(facts, settings, artifacts, on_run)
            if wanted != facts.status:
                send_status(facts, run.run_id, wanted, settings, delivery.publication_id)
        except EwError as error:
            write_delivery(folder, replace(read_delivery(folder), reason=error.message))
            raise
        now = read_delivery(folder)  # the run may have asked for more meanwhile
        left = {place: path for place, path in now.artifacts.items() if place not in artifacts}
        now = replace(now, sent=wanted, artifacts=left, mlflow_run_id=run.run_id, url=run.url, reason=None)
        write_delivery(folder, now)
        return now


def undelivered(settings: Settings) -> list[Path]:
    """Folders of runs of which MLflow does not know all, oldest week first."""
    folders = sorted(path.parent for path in settings.runs.glob(f"*/{FILE}"))
    return [folder for folder in folders if _is_open(folder)]


def deliver_all(settings: Settings) -> list[Delivery]:
    """Send everything that earlier runs could not, and return how far each got.

    A run that can never be sent, because its files are gone, does not hold up the others; MLflow being away
    does: ``TrackingError``.
    """
    delivered = []
    for folder in undelivered(settings):
        try:
            delivered.append(deliver(folder, settings))
        except TrackingError:
            raise
        except EwError:
            delivered.append(read_delivery(folder))
    return delivered


def _is_open(folder: Path) -> bool:
    try:
        return not read_delivery(folder).settled
    except EwError:  # of a record that cannot be read nothing can be sent
        return False
