"""What a policy may look at when it scores a week: everything up to the end of it, and nothing later.

A ``PastView`` holds a panel cut at its week and the labels that had matured by then. What is expensive (the
evidence of a past week, its labels) depends on earlier data alone, so views of later weeks share it through
a cache without learning anything they should not know.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ew_pipeline.backtest.evidence import (
    LONGEST_LOOK,
    CrossSection,
    Evidence,
    WeekFits,
    gather,
    gather_cross_section,
)
from ew_pipeline.backtest.labels import (
    LABEL_VERSION,
    MINIMUM_WEEKS,
    Labels,
    label_week,
)
from ew_pipeline.core.week import maturity
from ew_pipeline.intake.panel import Panel

if TYPE_CHECKING:
    from ew_pipeline.backtest.calibration import LabelledWeek

BoolArray = npt.NDArray[np.bool_]
T = TypeVar("T")


class LabelSource(Protocol):
    """Where labels come from, and when they are known."""

    @property
    def rule(self) -> str:
        """text, pair, code or truth."""

    @property
    def version(self) -> str:
        """Which version of the rule."""

    @property
    def weeks_after(self) -> int:
        """How many weeks after a week must be in before it has labels."""

    @property
    def threshold(self) -> float | None:
        """The share of a week's sales that must be lost; None where labels say yes or no."""

    def of(self, panel: Panel, t: int) -> Labels:
        """The labels of week ``t``, looking back from the end of the panel."""

    def known_at(self, t: int) -> range:
        """The weeks whose labels are known when week ``t`` is scored."""

    def until(self, t: int) -> LabelSource:
        """The same source as it stood at the end of week ``t``."""

    def content_hash(self, panel: Panel, t: int) -> str:
        """SHA-256 of what the labels of week ``t`` are made from, in a panel that ends where they do."""


@dataclass(frozen=True)
class RuleLabels:
    """Labels by a rule on the sales around the week; known once its window lies before the current week."""

    rule: str
    minimum: int = MINIMUM_WEEKS
    threshold: None = None

    @property
    def version(self) -> str:
        return LABEL_VERSION if self.minimum == MINIMUM_WEEKS else f"{LABEL_VERSION}, minimum {self.minimum}"

    @property
    def weeks_after(self) -> int:
        return maturity(self.rule)

    def of(self, panel: Panel, t: int) -> Labels:
        return label_week(panel, t, self.rule, self.minimum)

    def known_at(self, t: int) -> range:
        width = maturity(self.rule)
        return range(width, max(width, t - width))

    def until(self, t: int) -> RuleLabels:
        return self

    def content_hash(self, panel: Panel, t: int) -> str:
        return panel.content_hash()


@dataclass(frozen=True, eq=False)
class TruthLabels:
    """Labels from outside, such as store checks: pairs x weeks; those of earlier weeks are known.

    ``weight``: how many pairs a label stands for, where some pairs were likelier to be looked at than others.
    ``threshold``: the share from which on a truth in shares is an anomaly; None where it says yes or no.
    """

    known: BoolArray
    anomaly: BoolArray
    rule: str = "truth"
    version: str = LABEL_VERSION
    weeks_after: int = 0
    weight: npt.NDArray[np.float32] | None = None
    threshold: float | None = None

    def of(self, panel: Panel, t: int) -> Labels:
        known = self.known[:, t] & panel.observed[:, t]
        weight = None if self.weight is None else self.weight[:, t].astype(np.float64)
        return Labels(known, self.anomaly[:, t] & known, weight)

    def known_at(self, t: int) -> range:
        return range(t)

    def until(self, t: int) -> TruthLabels:
        weight = None if self.weight is None else self.weight[:, :t].copy()
        return replace(
            self, known=self.known[:, :t].copy(), anomaly=self.anomaly[:, :t].copy(), weight=weight
        )

    def content_hash(self, panel: Panel, t: int) -> str:
        said = np.where(self.known[:, t], self.anomaly[:, t], -1)[panel.observed[:, t]].astype(np.int8)
        return hashlib.sha256(panel.content_hash().encode() + said.tobytes()).hexdigest()


class LabelledWeeks(Protocol):
    """Somewhere labelled weeks are kept."""

    def find(self, content: str, make: Callable[[], LabelledWeek]) -> LabelledWeek:
        """The one kept for just this content (``PastView.content``), or ``make()``."""


@dataclass(eq=False)
class Memory:
    """What was worked out for past weeks, by what it is and the week.

    ``fits`` and ``labelled`` outlive the process. ``evidence_weeks``: of how many weeks, the latest, the
    evidence is kept at most, the largest thing here by far; None for all. Weeks may be worked out side by
    side in threads.
    """

    fits: WeekFits | None = None
    evidence_weeks: int | None = None
    labelled: LabelledWeeks | None = None
    _found: dict[tuple[str, int], object] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def get(self, what: str, week: int, kind: type[T]) -> T | None:
        value = self._found.get((what, week))
        return value if isinstance(value, kind) else None

    def keep(self, what: str, week: int, value: T) -> T:
        with self._lock:
            self._found[(what, week)] = value
            if isinstance(value, Evidence) and self.evidence_weeks is not None:
                kept = [key for key, other in self._found.items() if isinstance(other, Evidence)]
                for key in sorted(kept, key=lambda key: key[1])[: -self.evidence_weeks]:
                    del self._found[key]
        return value

    def forget_before(self, week: int) -> None:
        """Drop what lies too far back to be asked for again."""
        with self._lock:
            self._found = {key: value for key, value in self._found.items() if key[1] >= week}


class PastView:
    """Week ``t`` as it stood: ``panel`` ends with it; labels are those that had matured."""

    def __init__(self, panel: Panel, t: int, labels: LabelSource, memory: Memory | None = None) -> None:
        self.panel = panel.until(t)
        self.t = t
        self.rule = labels.rule
        self.threshold = labels.threshold
        self.memory = memory if memory is not None else Memory()
        self._labels = labels.until(t)

    @property
    def week(self) -> str:
        return self.panel.weeks[-1]

    @property
    def pairs(self) -> npt.NDArray[np.int64]:
        """Rows of the panel to be scored: the pairs observed this week."""
        return np.flatnonzero(self.panel.observed[:, self.t])

    def evidence(self, week: int | None = None) -> Evidence:
        """The evidence of this week, or of an earlier one as it stood then."""
        at = self.t if week is None else week
        found = self.memory.get("evidence", at, Evidence)
        return found or self.memory.keep("evidence", at, gather(self.panel.until(at), self.memory.fits))

    def cross_section(self, week: int | None = None) -> CrossSection:
        """The same without a past."""
        at = self.t if week is None else week
        found = self.memory.get("cross-section", at, CrossSection)
        return found or self.memory.keep("cross-section", at, gather_cross_section(self.panel.until(at)))

    def hash_weeks(self) -> None:
        """What ``content`` needs of every week, once before several threads ask for it."""
        if self.memory.labelled is not None:
            _ = self.panel.week_hashes

    def content(self, week: int, labels: Labels) -> str:
        """What the evidence and the labels of a past week are made from, as a hash."""
        digest = hashlib.sha256(self.rule.encode())
        first = max(0, week - LONGEST_LOOK)
        for label, seen in zip(
            self.panel.weeks[first : week + 1], self.panel.week_hashes[first:], strict=False
        ):
            digest.update(f"\n{label} {seen}".encode())
        pairs = np.flatnonzero(self.panel.observed[:, week])
        for values in (labels.known, labels.anomaly, labels.weight):
            digest.update(b"\0" if values is None else b"\1" + np.ascontiguousarray(values[pairs]).tobytes())
        return digest.hexdigest()

    def mature(self, most: int) -> Mapping[int, Labels]:
        """Labels of the last ``most`` past weeks that have any, ascending in time."""
        found: dict[int, Labels] = {}
        for week in reversed(self._labels.known_at(self.t)):
            if len(found) == most:
                break
            labels = self.memory.get("labels", week, Labels)
            if labels is None:
                labels = self.memory.keep("labels", week, self._labels.of(self.panel, week))
            if labels.known.any():
                found[week] = labels
        return dict(sorted(found.items()))
