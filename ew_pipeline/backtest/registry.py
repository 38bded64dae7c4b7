"""All policies by name, and which of them is the default."""

from __future__ import annotations

from collections.abc import Sequence

from ew_pipeline.backtest.policies import Calibrated, CrossSectionOnly, History, Policy, Record
from ew_pipeline.backtest.simple_policies import ConstantRate, Ignore, PaperMode, TrailingRule, TrailingTail
from ew_pipeline.core.errors import UsageError

CALIBRATED = "calibrated-history"
CALIBRATED_CROSS = "calibrated-cross-section"
ALWAYS = ("ignore", "trailing", "trailing-sku")  # what every result is measured against
SLOW = ("paper", "paper-practical", "cross-section", CALIBRATED_CROSS)
SLOW_CELLS = 400_000  # pairs times weeks; beyond, the slow ones would take most of ten minutes


def all_policies(more: Sequence[Policy] = ()) -> tuple[Policy, ...]:
    """In the order of the table: what is done today, ``more`` (methods of other authors), ours."""
    return (
        Ignore(),
        ConstantRate(),
        TrailingRule(),
        TrailingRule(moved=True),
        TrailingTail(),
        *more,
        PaperMode("paper"),
        PaperMode("paper-practical"),
        CrossSectionOnly(),
        Calibrated(CALIBRATED_CROSS, history=False),
        History(),
        Record(),
        Calibrated(CALIBRATED),
    )


def default_policy(*, history: bool, calibrate: bool) -> str:
    """The name of what we would run, given what may be used."""
    if history:
        return CALIBRATED if calibrate else "history"
    return CALIBRATED_CROSS if calibrate else "cross-section"


def chosen_policies(
    names: Sequence[str], default: str, cells: int = 0, more: Sequence[Policy] = ()
) -> tuple[Policy, ...]:
    """The named policies, the default, and what every result is measured against.

    No name means all, but the slow ones only up to ``SLOW_CELLS``; "all" means all.
    """
    if "all" in names:
        return all_policies(more)
    known = {policy.name: policy for policy in all_policies(more)}
    wrong = [name for name in names if name not in known]
    if wrong:
        raise UsageError(f"there is no policy {', '.join(wrong)}.", f"choose from {', '.join(known)}.")
    usual = set(known) - (set(SLOW) if cells > SLOW_CELLS else set())
    wanted = {*(names or usual), *ALWAYS, default}
    return tuple(policy for name, policy in known.items() if name in wanted)
