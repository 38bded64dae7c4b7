"""The weeks before, side by side, for a probability that is learnt from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ew_pipeline.backtest.view import TruthLabels
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.intake.coded_snapshot import CheckRows, CodedSnapshot
from ew_pipeline.intake.panel import Panel, panel_from_keys
from ew_pipeline.intake.ranging import Entries, on_holiday

LEAST_WEEKS = 5  # before the week; the mean that a drop is measured against is over so many


@dataclass(frozen=True, eq=False)
class Past:
    """What is known of the weeks before.

    Attributes
    ----------
    panel : every pair in every week up to this one, promotions marked; None where it is not to be used.
    why_not : in words, when there is no panel.
    weeks : of the panel, before this one.
    checks : what stores found in those weeks; None without any.
    """

    panel: Panel | None
    why_not: str = ""
    weeks: int = 0
    checks: TruthLabels | None = None


def look_back(
    coded: CodedSnapshot,
    week: Week,
    config: RunConfig,
    pairs: int,
    entries: Callable[[Week], Entries],
) -> Past:
    """The panel of the week and of up to ``config.calibration_weeks`` before it.

    ``entries`` gives the observed pairs of a week of the snapshot. Holidays of the past are not observed:
    sales of such a week say nothing of another.
    """
    if not config.looks_back:
        why = "history is switched off" if not config.history else f"{config.probability} was asked for"
        return Past(None, why)
    if pairs > config.max_calibrated_pairs:
        return Past(
            None, f"{pairs:,} pairs are more than max_calibrated_pairs ({config.max_calibrated_pairs:,})"
        )
    oldest = week.shift(-config.calibration_weeks)
    before = [other for other in coded.weeks if oldest <= other < week]
    if len(before) < LEAST_WEEKS:
        return Past(None, f"the sales hold {len(before)} weeks before {week}, and {LEAST_WEEKS} are needed")
    panel = _panel(coded, before[0].through(week), config, entries)
    return Past(panel, weeks=len(before), checks=_labels(coded.checks, panel, coded.shape[1]))


def _panel(
    coded: CodedSnapshot, weeks: list[Week], config: RunConfig, entries: Callable[[Week], Entries]
) -> Panel:
    kept: list[Entries] = []
    columns: list[int] = []
    for column, week in enumerate(weeks):
        if week not in coded.weeks:
            continue
        found = entries(week)
        if week != weeks[-1]:
            usual = ~on_holiday(coded.weeks[week], coded.shape)[found.key // coded.shape[1]]
            found = found if usual.all() else found.take(usual)
        kept.append(found)
        columns.append(column)
    marked = config.promotions == "exclude" and any(rows.promo is not None for rows in coded.weeks.values())
    return panel_from_keys(
        coded.store_ids,
        coded.sku_ids,
        np.concatenate([one.key for one in kept]),
        np.repeat(np.array(columns, dtype=np.int16), [one.key.size for one in kept]),
        np.concatenate([one.units for one in kept]),
        tuple(str(week) for week in weeks),
        np.concatenate([one.promo for one in kept]) if marked else None,
    )


def _labels(checks: CheckRows | None, panel: Panel, skus: int) -> TruthLabels | None:
    if checks is None:
        return None
    first = Week.parse(panel.weeks[0]).index
    keys = panel.store.astype(np.int64) * skus + panel.sku
    row = np.minimum(np.searchsorted(keys, checks.key), keys.size - 1)
    column = checks.week - first
    inside = (keys[row] == checks.key) & (column >= 0) & (column < panel.n_weeks - 1)
    if not inside.any():
        return None
    row, column = row[inside], column[inside]
    known, wrong = (np.zeros(panel.units.shape, dtype=np.bool_) for _ in range(2))
    weight = np.ones(panel.units.shape, dtype=np.float32)
    known[row, column] = True
    wrong[row, column] = checks.wrong[inside]
    # In units of one check: as many as were made, however few they are of the pairs they stand for.
    weight[row, column] = checks.weight[inside] / checks.weight[inside].mean()
    return TruthLabels(known, wrong, weight=weight)
