"""Which publications can be evaluated: labels of a week exist only once the weeks after it are in."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ew_pipeline.backtest.view import LabelSource
from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.core.provenance import file_hash
from ew_pipeline.core.week import Week
from ew_pipeline.intake.panel import Panel
from ew_pipeline.intake.snapshot import is_kept
from ew_pipeline.ledger import Ledger, Publication
from ew_pipeline.ledger.records import BASIS


@dataclass(frozen=True)
class Known:
    """An evaluation in the ledger, by what makes it the same one."""

    publication_id: int
    label_rule: str
    label_version: str
    data_hash: str | None


def known_evaluations(ledger: Ledger) -> dict[Known, int]:
    """Ids of all evaluations by labels."""
    rows = ledger.table("evaluations", basis=BASIS)
    columns = ("publication_id", "label_rule", "label_version", "data_hash", "id")
    return {
        Known(int(publication), str(rule), str(version), data): int(number)
        for publication, rule, version, data, number in zip(*(rows[name] for name in columns), strict=True)
    }


def due_publications(ledger: Ledger, labels: LabelSource, last: Week | None) -> tuple[Publication, ...]:
    """Everything ever published, oldest week first, whose labels are in by week ``last`` and that was not
    evaluated under this rule and version. A rollback has no content of its own: its source is evaluated. Of
    weeks by row blocks no sales are kept, so none is due."""
    if last is None:
        return ()
    done = {
        known.publication_id
        for known in known_evaluations(ledger)
        if (known.label_rule, known.label_version) == (labels.rule, labels.version)
    }
    return tuple(
        one
        for one in sorted(ledger.publications(), key=lambda one: (one.week, one.id))
        if one.id == one.source_id
        and one.id not in done
        and one.week.shift(labels.weeks_after) <= last
        and is_kept(one.data_hash)
    )


def chosen_publication(ledger: Ledger, week: Week, number: int | None) -> Publication:
    """What is live for the week, or another of its publications, as it stood."""
    if number is not None:
        asked = ledger.publication(number)
        if asked.week != week:
            raise UsageError(
                f"publication {number} is of {asked.week}, not of {week}.", "leave out one of the two."
            )
        return ledger.publication(asked.source_id)
    live = ledger.current(week)
    if live is None:
        published = [str(one.week) for one in ledger.live()]
        raise UsageError(
            f"week {week} was never published.",
            f"choose one that was, such as {published[-1]}." if published else "publish one first: ew run …",
        )
    return ledger.publication(live.source_id)


def refuse_immature(panel: Panel, week: Week, labels: LabelSource, *, from_file: bool) -> None:
    """Say which week is missing and what to type."""
    first, last = Week.parse(panel.weeks[0]), Week.parse(panel.weeks[-1])
    needed = week.shift(labels.weeks_after)
    if first <= week and needed <= last:
        return
    where = "the sales given" if from_file else "the sales kept from earlier runs"
    if week < first:
        raise DataError(
            f"{week} lies before {where}, which begin with {first}.",
            f"give sales that hold it: ew evaluate --week {week} --sales FILE",
        )
    again = f"ew evaluate --week {week} --sales FILE, with a file that reaches {needed}"
    raise DataError(
        f"the labels of {week} are not mature: by the rule {labels.rule} they need the sales up to {needed}, "
        f"and {where} end with {last}.",
        again if from_file else f"run the weeks up to {needed} (ew run --week {needed} …), or type {again}.",
    )


def published_scores(publication: Publication) -> pd.DataFrame:
    """Every scored pair of a publication, as it was published."""
    path = publication.scores
    if path is None or not path.is_file():
        raise DataError(
            f"the scores of publication {publication.id} ({publication.week}) are not kept any more.",
            "evaluate weeks before they are pruned, or keep more of them: EW_KEEP_WEEKS.",
        )
    if file_hash(path) != publication.scores_hash:
        raise DataError(
            f"{path} is not what was published for {publication.week}.",
            "see what else was changed: ew audit verify.",
        )
    return pd.read_parquet(path)
