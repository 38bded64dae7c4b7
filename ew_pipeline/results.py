"""What travels between the stages of a weekly run, and what report, tracking and ledger read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pandas as pd

from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.decide.flags import DRAWN, ScoreTotals
from ew_pipeline.expect.fit import SegmentResult
from ew_pipeline.infer.pricing import Pricing
from ew_pipeline.infer.theta import OverWeeks
from ew_pipeline.intake.assemble import Coverage
from ew_pipeline.intake.contract import Contract
from ew_pipeline.intake.sources import WeekSources
from ew_pipeline.method.theta import Theta


@dataclass(frozen=True)
class WeekRequest(WeekSources):
    """One week to run: its sources, and how it is to end."""

    shadow: bool = False
    override: Override | None = None
    blocks_on: str | None = None  # the address of the cluster whose workers hold the week by row blocks


@dataclass(frozen=True)
class Override:
    """A person publishes a result that the gate held back."""

    who: str
    why: str


@dataclass(frozen=True)
class CrossSection:
    """The week without its past, as the paper has it: not published, for comparison.

    ``both`` are pairs that it and the published decision flag.
    """

    theta: Theta  # pooled over the segments
    scored: int
    flags: int
    both: int
    expected_cost: float
    expected_saving: float
    seconds: float


@dataclass(frozen=True)
class GateCheck:
    """One reason to publish or to hold back, in words."""

    name: str
    passed: bool
    words: str


@dataclass(frozen=True)
class Provenance:
    """What is needed to make the result again."""

    data_hash: str
    config_hash: str
    code_version: str
    seed: int
    environment: Mapping[str, str]
    flow_run_id: str | None = None
    mlflow_run_id: str | None = None

    @property
    def input_key(self) -> tuple[str, str, str]:
        """Two runs of one week with the same key give the same flags."""
        return (self.data_hash, self.config_hash, self.code_version)


@dataclass(frozen=True, eq=False)
class WeekResult:
    """A computed week, before or after publication.

    ``scores`` has a row for every scored pair with the columns of ``schema.FLAGS`` except ``week``, and
    ``level`` (NaN without history), ``posterior`` (of the week's fit, priced or not) and ``flagged``, and
    where some are drawn ``random_check`` (not flagged, but to be checked); sorted by store and SKU. The flags
    are its rows with ``flagged``. ``over_weeks`` is by segment, and ``pooled`` for the chain.

    Of a week by row blocks ``scores`` has the pairs to check alone. All of them are in ``score_files``, by
    name in the folder with their sha256, and summed in ``given_totals``.
    """

    run_id: str
    week: Week
    started_at: dt.datetime
    shadow: bool
    config: RunConfig
    contract: Contract
    coverage: Coverage
    segments: tuple[SegmentResult, ...]
    pooled: Theta
    scores: pd.DataFrame
    gate: tuple[GateCheck, ...]
    provenance: Provenance
    folder: Path  # runs/<run_id>
    timings: Mapping[str, float]  # seconds by step
    override: Override | None = None  # who publishes it although a check failed
    pricing: Pricing = field(default_factory=Pricing)
    cross_section: CrossSection | None = None
    over_weeks: Mapping[str, OverWeeks] = field(default_factory=dict)
    given_totals: ScoreTotals | None = None  # where they are known already
    score_files: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def totals(self) -> ScoreTotals:
        """Of all scored pairs."""
        return self.given_totals or ScoreTotals.of(self.scores)

    def totals_of(self, segment: str) -> ScoreTotals:
        """Of a segment's pairs: where there is one, ten million rows are neither copied nor summed twice."""
        if len(self.segments) == 1:
            return self.totals
        return ScoreTotals.of(self.scores[self.scores["segment"] == segment])

    @property
    def flags(self) -> pd.DataFrame:
        """The pairs to check, best first."""
        return self._flags.copy(deep=False)

    @cached_property
    def _flags(self) -> pd.DataFrame:
        """Looked for once: among ten million scores that takes a second."""
        chosen = self.scores[self.scores["flagged"]]
        return chosen.sort_values(
            ["expected_saving", "store_id", "sku_id"], ascending=[False, True, True], kind="stable"
        ).reset_index(drop=True)

    @property
    def random_checks(self) -> pd.DataFrame:
        """The pairs that were drawn to be checked although they are not flagged, with the chance of it."""
        drawn = self.scores[DRAWN] if DRAWN in self.scores else self.scores["flagged"] & False
        chance = float(drawn.sum()) / max(self.totals.pairs - self.totals.flagged, 1)
        return self.scores[drawn].reset_index(drop=True).assign(inclusion_probability=chance)

    @property
    def held(self) -> tuple[GateCheck, ...]:
        """The checks that failed; empty means fit to publish."""
        return tuple(check for check in self.gate if not check.passed)

    @property
    def may_publish(self) -> bool:
        """Nothing holds it back, or a person has taken that on; a shadow run never may."""
        return not self.shadow and (not self.held or self.override is not None)

    @property
    def expected_saving(self) -> float:
        return self.totals.expected_saving

    @property
    def expected_cost_ignoring(self) -> float:
        """Expected cost of doing nothing: sum of P(wrong) x missed over the scored pairs."""
        return self.totals.expected_cost_ignoring

    @property
    def expected_cost(self) -> float:
        """Expected cost with the checks made."""
        return self.totals.expected_cost
