"""What travels between the stages of a weekly run, and what report, tracking and ledger read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.decide.totals import ScoreTotals
from ew_pipeline.method.theta import Theta

if TYPE_CHECKING:
    from ew_pipeline.backtest.calibration import Calibration


@dataclass(frozen=True)
class WeekRequest:
    """One week to run. A source is a file, a directory of partitions, or SQL (see ``data.sources``).

    ``stores`` and ``skus`` are tables of attributes (region, department) for ``config.segment_by``.
    """

    week: Week
    sales: str
    listing: str | None = None
    costs: str | None = None
    stores: str | None = None
    skus: str | None = None
    config: RunConfig = field(default_factory=RunConfig)
    shadow: bool = False
    override: Override | None = None
    blocks_on: str | None = None  # the address of the cluster whose workers hold the week by row blocks


@dataclass(frozen=True)
class Override:
    """A person publishes a result that the gate held back."""

    who: str
    why: str


@dataclass(frozen=True)
class Fault:
    """A kind of fault found in a table, with how many rows it hit."""

    table: str
    reason: str  # in words, e.g. "units below zero"
    rows: int
    examples: tuple[str, ...]  # the first few keys
    rejects: bool  # True: the whole batch is rejected; False: the rows are quarantined


@dataclass(frozen=True)
class Contract:
    """What validation found.

    ``quarantine``: the folder with a CSV per table, every faulty row with its reason; None without any.
    ``data_docs``: index.html of Great Expectations' Data Docs; not there when a table could not be read.
    ``rows_known``: sales of earlier weeks that a run before this one had found without fault in the same
    file; they are among ``rows_read``, but not in these Data Docs.
    """

    faults: tuple[Fault, ...]
    rows_read: Mapping[str, int]  # by table, of the weeks that were asked for
    rows_quarantined: int
    quarantine: Path | None
    data_docs: Path
    ignored_columns: Mapping[str, tuple[str, ...]]
    rows_known: int = 0


@dataclass(frozen=True)
class Snapshot:
    """Validated inputs, kept by the hash of their content (``data.snapshot``)."""

    data_hash: str
    folder: Path


@dataclass(frozen=True)
class Coverage:
    """Which pairs are in the matrix, and where the others went."""

    zero_rule: str  # "explicit", "listing" or "inferred"
    stores_expected: int
    stores_reporting: int
    stores_missing: tuple[str, ...]  # listed or seen before, but no row this week
    pairs_observed: int  # in the matrix, zeros included
    pairs_zero: int
    pairs_zero_filled: int  # of them, zeros that had no row
    pairs_promoted: int  # left out, or kept, by the setting
    pairs_unlisted: int  # sold, but not ranged by the listing: left out
    pairs_not_scored: int  # too little data on store, SKU and pair
    history_weeks: int  # weeks of the past that the level is built from; 0: cross-section only


@dataclass(frozen=True)
class SegmentResult:
    """One fitted matrix."""

    name: str  # "all" when there is one
    stores: int
    skus: int
    pairs: int
    theta: Theta
    rank: int
    noise: str
    anomaly: str
    dispersion_size: float  # infinite: Poisson
    mode: str
    mode_reason: str
    converged: bool
    null_gain: float  # nats by which the model with anomalies beats the one without
    rank_curve: tuple[tuple[int, float], ...]  # (rank, leave-one-out log predictive per pair)
    held_out_curve: tuple[tuple[int, float], ...]
    rank_weights: Mapping[int, float]
    singular_values: tuple[float, ...]
    warnings: tuple[str, ...]
    seconds: float
    model: Path | None  # folder with model.json and arrays.npz; None: by row blocks, nowhere in one place


@dataclass(frozen=True)
class Chance:
    """What a priced probability is the probability of: its name in a table, and what that means."""

    name: str
    meaning: str


WRONG = Chance("P(wrong)", "the probability that the inventory record is wrong")
DROP = Chance(
    "P(drop)",
    "the probability that sales have fallen to half of the pair's own level or below, whatever the cause",
)
UNCALIBRATED = ("drop", "history", "trailing", "trailing-sku")


def chance(form: str, labels: str) -> Chance:
    """Only the mixture's posterior, and what store checks have taught, speak of the record itself."""
    told = labels == "checks" and form not in UNCALIBRATED
    return WRONG if form == "posterior" or told else DROP


@dataclass(frozen=True)
class Pricing:
    """Which probability is priced, and why.

    Attributes
    ----------
    asked : the setting.
    form : what is used: the detector's ``posterior`` or ``drop``, ``history`` (the drop against the weeks
        around by the pair's own past, no labels), or what a calibration chose (``many + history``, …).
    words : the same as a sentence.
    labels : what the calibration learnt from: pair, text, code or checks; "" without one.
    calibration : the record, also when it was learnt and refused; None when there was nothing to learn from.
    """

    asked: str = "posterior"
    form: str = "posterior"
    words: str = "the posterior of the week's fit is priced"
    labels: str = ""
    calibration: Calibration | None = None

    @property
    def chance(self) -> Chance:
        return chance(self.form, self.labels)

    @property
    def of_the_detector(self) -> bool:
        """Whether the week's own fit is priced, so that theta must be known."""
        return self.form in ("posterior", "drop")

    @property
    def calibrated(self) -> bool:
        return self.calibration is not None and self.calibration.accepted and not self.of_the_detector

    @property
    def as_asked(self) -> bool:
        """False when a form was asked for by name and could not be had."""
        wanted = {"auto": True, "calibrated": self.calibrated}
        return wanted.get(self.asked, self.form == self.asked)

    @property
    def version(self) -> str | None:
        """Of the calibration that the probability comes from."""
        return self.calibration.version if self.calibration is not None and not self.of_the_detector else None


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
class OverWeeks:
    """Theta of a segment with the weeks published before as a prior; ``weeks`` says how many."""

    theta: Theta
    weeks: int


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
    pricing: Pricing = Pricing()
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
        drawn = (
            self.scores["random_check"] if "random_check" in self.scores else self.scores["flagged"] & False
        )
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
