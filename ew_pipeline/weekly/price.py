"""Which probability is priced: what past weeks have taught where there are enough, else the fit's own.

In order of preference, for the setting ``auto``:

==========================  ====================================  ======================================
form                        what it is                            needs
==========================  ====================================  ======================================
``many + history``, …       evidence weighed by matured labels    labels of earlier weeks: 11 weeks of
                            of earlier weeks                      sales and more; a win over the others
``history``                 P(a drop by half against the weeks    five weeks before
                            around), by the pair's own past
``posterior``               the mixture of the week's own fit     nothing
==========================  ====================================  ======================================

One calibration for the chain, pooled over its segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ew_pipeline.backtest.calibration import FEWEST_ANOMALIES, NOTHING, Calibration
from ew_pipeline.backtest.evidence import WeekFits
from ew_pipeline.backtest.recalibrate import fit_weeks, score_week
from ew_pipeline.backtest.view import LabelledWeeks, LabelSource, Memory, RuleLabels
from ew_pipeline.core.arrays import Float
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.expect.fit import FittedSegment
from ew_pipeline.infer.pricing import Pricing
from ew_pipeline.intake.assemble import Prepared
from ew_pipeline.weekly.past import Past

HISTORY = "history"
EVIDENCE_WEEKS = 1  # in memory at a time; a week's evidence is twenty numbers per pair


@dataclass(frozen=True, eq=False)
class Priced:
    """``probability``: per segment, P(anomaly) of every observed pair in the order of its matrix."""

    pricing: Pricing
    probability: tuple[Float, ...]


@dataclass(frozen=True, eq=False)
class FittedPast:
    """What ``price`` learns from, in memory; ``weeks``: of how many labelled weeks."""

    memory: Memory
    weeks: int


def fit_past_weeks(
    past: Past,
    week: Week,
    config: RunConfig,
    fits: WeekFits | None = None,
    labelled: LabelledWeeks | None = None,
    threads: int = 1,
) -> FittedPast:
    """The fits and features of labelled weeks, and the week's own fit against its past: most of the time that
    a price takes. Weeks are fitted side by side on ``threads``.

    ``fits``, ``labelled``: where those of past weeks are kept between runs. Like ``threads``, they change how
    long this takes, and no number.
    """
    memory = Memory(fits, EVIDENCE_WEEKS, labelled)
    if past.panel is None:
        return FittedPast(memory, 0)
    labels, _, _ = _labels(past, config)
    return FittedPast(memory, fit_weeks(past.panel, str(week), labels, memory, threads))


def price(
    prepared: Prepared,
    fitted: Sequence[FittedSegment],
    config: RunConfig,
    fitted_past: FittedPast | None = None,
) -> Priced:
    """The probability to price, from the week, its past and its settings alone.

    ``fitted_past``: by ``fit_past_weeks``; without it, past weeks are fitted here.
    """
    past = prepared.past
    if past.panel is None:
        own = config.probability if config.probability == "drop" else "posterior"
        words = f"the {own} of the week's fit is priced"
        words += "" if config.probability == own else f": {past.why_not}"
        pricing = Pricing(config.probability, own, words)
        return Priced(pricing, tuple(one.fit.anomaly_probability_ for one in fitted))
    labels, source, note = _labels(past, config)
    memory = Memory(evidence_weeks=EVIDENCE_WEEKS) if fitted_past is None else fitted_past.memory
    scored = score_week(past.panel, str(prepared.week), labels, memory)
    record = scored.calibration
    asked_for_history = config.probability == HISTORY
    form = HISTORY if asked_for_history else record.chosen
    values = scored.label_free if asked_for_history else scored.probability
    words = _words(form, record, past, asked_for_history) + note
    pricing = Pricing(config.probability, form, words, source, record)
    return Priced(pricing, tuple(scored.in_order_of(one.fit.sales, values) for one in fitted))


def _labels(past: Past, config: RunConfig) -> tuple[LabelSource, str, str]:
    """Where labels come from, its name, and what to say when it is not what was asked for."""
    if config.calibration_labels != "checks":
        return RuleLabels(config.calibration_labels), config.calibration_labels, ""
    wrong = healthy = 0
    if past.checks is not None:
        wrong = int((past.checks.known & past.checks.anomaly).sum())
        healthy = int(past.checks.known.sum()) - wrong
        if min(wrong, healthy) >= FEWEST_ANOMALIES:
            return past.checks, "checks", ""
    note = (
        f"; labels are by the rule pair, since {wrong} confirmed and {healthy} healthy checks of the weeks "
        f"before are too few to learn from ({FEWEST_ANOMALIES} of each are needed)"
    )
    return RuleLabels("pair"), "pair", note


def _words(form: str, record: Calibration, past: Past, asked_for: bool) -> str:
    learnt = f"{len(record.weeks)} labelled weeks" + (
        f" ({record.weeks[0]} to {record.weeks[-1]}, rule {record.rule})" if record.weeks else ""
    )
    cost = f", where it costs {record.costs[form]:.2f} of doing nothing" if form in record.costs else ""
    if form == NOTHING:
        return f"nothing is flagged: on {learnt} no form costs less than doing nothing"
    if form == record.chosen and record.accepted:
        return f"a calibrated probability is priced ({form}), learnt from {learnt}{cost}"
    why = "as asked" if asked_for else record.reason
    if form == HISTORY:
        own = f"the drop against the pair's own past ({past.weeks} weeks)"
        return f"{own} is priced, without labels{cost}: {why}"
    return f"the {form} rule is priced{cost}: {why}"
