"""The page of a backtest or of a published week: one file that loads nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ew_pipeline._version import __version__
from ew_pipeline.backtest.measures import Measures
from ew_pipeline.backtest.page_pictures import (
    WeekPoint,
    calibration_picture,
    lift_picture,
    parts_picture,
    policies_picture,
    weeks_picture,
)
from ew_pipeline.backtest.parts import Part
from ew_pipeline.backtest.published import Decisions, PublishedMeasures
from ew_pipeline.backtest.run_backtest import BacktestReport, BacktestRequest
from ew_pipeline.core.provenance import canonical_hash
from ew_pipeline.core.resample import Estimate
from ew_pipeline.core.settings import Settings
from ew_pipeline.intake.source_passwords import without_password
from ew_pipeline.ledger import Publication
from ew_pipeline.ledger.records import PUBLISHED
from ew_pipeline.outputs.drawing import Plot
from ew_pipeline.outputs.page import page_environment, page_style, write_page_file
from ew_pipeline.outputs.report_tables import Table
from ew_pipeline.outputs.words import (
    clean,
    count,
    days,
    money,
    plural,
    share,
)

RIVALS = ("trailing", "trailing-sku", "calibrated-history", "history")
MOST_LINES = 4
PAGE = "evaluation.html"


@dataclass(frozen=True)
class Figure:
    """A number in large, and what it is."""

    term: str
    value: str
    words: str


@dataclass(frozen=True)
class EvaluationContent:
    """A page.

    ``shown`` is the policy in question, ``policies`` all of them with their measures, ``series`` the cost of
    a few by week. ``good`` colours the verdict.
    """

    eyebrow: str
    headline: str
    good: bool
    verdict: str
    figures: tuple[Figure, ...]
    shown: str
    policies: Mapping[str, Measures]
    series: Mapping[str, Sequence[WeekPoint]]
    tables: tuple[Table, ...]
    facts: Table
    note: str


def compared(policies: Mapping[str, Measures], shown: str) -> tuple[str, ...]:
    """The policy in question and the few drawn beside it: what is done today, then the cheapest."""
    rest = [name for name in cheapest_first(policies) if name not in ("ignore", shown)]
    usual = [name for name in RIVALS if name in rest]
    return (shown, *dict.fromkeys([*usual[:MOST_LINES], *rest]))[: MOST_LINES + 1]


def series_of(
    weeks: Sequence[str], policies: Mapping[str, Measures], names: Sequence[str]
) -> dict[str, list[WeekPoint]]:
    """Cost by week of ``names``, from measures over all ``weeks``."""
    return {
        name: [
            WeekPoint(week, value, *ends)
            for week, value, ends in zip(
                weeks,
                policies[name].cost_ratio_by_week,
                policies[name].cost_ratio_by_week_interval,
                strict=True,
            )
        ]
        for name in names
    }


def parts_of(measures: Measures, kind: str) -> list[tuple[str, Part]]:
    """Bands or segments with a name to show."""
    if kind == "band":
        return [(band.words, band) for band in measures.bands]
    return [(segment.name, segment) for segment in measures.segments]


def policies_table(policies: Mapping[str, Measures], shown: str) -> Table:
    """Every policy by every measure, the cheapest first."""
    rows = []
    for name in cheapest_first(policies):
        m = policies[name]
        rows.append(
            (
                f"{clean(name)} *" if name == shown else clean(name),
                _number(m.cost_ratio),
                _ends(m.cost_ratio_interval),
                _number(m.cost_ratio_exact["notebook"]),
                _number(m.regret_to_constant, signed=True),
                _number(m.auc),
                _number(m.average_precision),
                _number(m.tpr_at["0.05"]),
                _number(m.calibration_gap),
                _number(m.lift_top_k, 2),
            )
        )
    columns = (
        "Policy",
        "Cost",
        "90% interval",
        "Notebook's costs",
        "Over best constant",
        "AUC",
        "AP",
        "TPR at 5%",
        "Calibration gap",
        "Lift, top 5",
    )
    return Table(
        "Every measure",
        columns,
        tuple(rows),
        frozenset(range(1, len(columns))),
        "Cost is a ratio to doing nothing, exact over uniform costs; below 1 pays for itself. The interval "
        "is over weeks (over stores for a single week).",
    )


def parts_table(title: str, measures: Measures, kind: str) -> Table | None:
    """One policy on parts of the pairs; None when there is one part only."""
    parts = parts_of(measures, kind)
    if len(parts) < 2:
        return None
    rows = tuple(
        (clean(label), count(p.pairs), share(p.anomaly_rate), _number(p.cost_ratio), _number(p.auc))
        for label, p in parts
    )
    first = "Units a week" if kind == "band" else "Segment"
    columns = (first, "Pairs", "Anomalies", "Cost", "AUC")
    return Table(title, columns, rows, frozenset({1, 2, 3, 4}))


def cheapest_first(policies: Mapping[str, Measures]) -> list[str]:
    """By cost; those without a figure last."""
    cost = {name: one.cost_ratio for name, one in policies.items()}
    return sorted(cost, key=lambda name: (math.isnan(cost[name]), cost[name]))


def _number(value: float, digits: int = 3, *, signed: bool = False) -> str:
    if value != value:
        return "–"
    return f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"


def _ends(ends: tuple[float, float]) -> str:
    return f"{_number(ends[0])} – {_number(ends[1])}"


def write_evaluation(content: EvaluationContent, folder: Path) -> Path:
    """Write ``evaluation.html`` into ``folder``."""
    return write_page_file(folder / PAGE, render_evaluation(content))


def render_evaluation(content: EvaluationContent) -> str:
    """The page as text."""
    plots = {plot.name: plot for plot in _plots(content)}
    template = page_environment("ew_pipeline.backtest").get_template("evaluation.html.jinja")
    return template.render(
        content=content,
        plots={name: Markup(plot.svg) for name, plot in plots.items()},
        described=plots,
        style=page_style(),
        version=__version__,
    )


def _plots(content: EvaluationContent) -> list[Plot]:
    shown, policies = content.shown, content.policies
    lines = compared(policies, shown)
    beside = {name: policies[name] for name in lines}
    found = [policies_picture(policies, shown), weeks_picture(content.series, shown)]
    found.append(calibration_picture(policies[shown]))
    for kind, title in (("band", "By what the pair used to sell"), ("segment", "By segment")):
        parts = {name: parts_of(policies[name], kind) for name in lines[:4]}
        found.append(parts_picture(kind, title, parts, shown))
    found.append(lift_picture(beside, shown))
    return [plot for plot in found if plot is not None]


def write_backtest_page(report: BacktestReport, settings: Settings, out: Path | None) -> Path:
    """In ``out``, or in a folder of the home named after the sales, the weeks and what was asked."""
    request, weeks = _without_passwords(report.request), report.result.weeks
    asked = canonical_hash(asdict(request))[:8]
    name = f"backtest-{Path(request.sales).stem[:40]}-{weeks[0]}-{weeks[-1]}-{report.rule}-{asked}"
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
    return write_evaluation(backtest_content(report), out or settings.evaluations / safe)


def _without_passwords(request: BacktestRequest) -> BacktestRequest:
    listing = None if request.listing is None else without_password(request.listing)
    truth = None if request.truth is None else without_password(request.truth)
    return replace(request, sales=without_password(request.sales), listing=listing, truth=truth)


def backtest_content(report: BacktestReport) -> EvaluationContent:
    """What every policy would have cost over the weeks, with what was known at the time."""
    result, default, request = report.result, report.default, _without_passwords(report.request)
    own = result.policies[default]
    names = compared(result.policies, default)
    low, high = own.cost_ratio_interval
    tables = (
        policies_table(result.policies, default),
        parts_table(f"{default} by what the pair used to sell", own, "band"),
        parts_table(f"{default} by segment", own, "segment"),
    )
    return EvaluationContent(
        eyebrow=f"Backtest · {plural(len(result.weeks), 'week')}, {result.weeks[0]} to {result.weeks[-1]}",
        headline=f"{clean(default)} costs {own.cost_ratio:.2f} of doing nothing",
        good=report.verdict.use,
        verdict=f"{report.verdict.reason}.",
        figures=(
            Figure("Cost", f"{own.cost_ratio:.3f}", f"of doing nothing; {low:.3f} to {high:.3f} over weeks"),
            Figure(
                "Ranking",
                f"{own.auc:.3f}",
                f"AUC within a week; average precision {own.average_precision:.3f}",
            ),
            Figure("Labelled", count(result.pairs), f"pairs, {share(own.anomaly_rate)} of them anomalies"),
        ),
        shown=default,
        policies=result.policies,
        series=series_of(result.weeks, result.policies, names),
        tables=tuple(table for table in tables if table is not None),
        facts=Table(
            "How",
            ("", ""),
            (
                ("Sales", clean(request.sales)),
                ("Label", report.rule),
                ("Costs", request.costs),
                ("Zeros", report.table.zero_rule),
                ("Weeks without labels", str(len(result.skipped))),
                ("Seconds", f"{sum(result.seconds.values()):.0f}"),
            ),
        ),
        note="Every policy saw only what was known at the end of the week it scored.",
    )


def week_content(
    publication: Publication, found: PublishedMeasures, costs: str, evaluations: Sequence[Mapping[str, Any]]
) -> EvaluationContent:
    """``evaluations``: the documents of the ledger's evaluations by the same labels, this one included."""
    own = found.published
    policies = {name: one.measures for name, one in found.policies.items()}
    decisions = own.decisions
    tables = (
        decisions_table({name: one.decisions for name, one in found.policies.items()}),
        policies_table(policies, PUBLISHED),
        parts_table("Published, by what the pair used to sell", own.measures, "band"),
        parts_table("Published, by segment", own.measures, "segment"),
    )
    saved = decisions.saving.value
    return EvaluationContent(
        eyebrow=f"Evaluation, label {found.label_rule} · week {publication.week} · {days(publication.week)}",
        headline=f"{decisions.found} of {count(decisions.flagged)} flags were right",
        good=saved > 0,
        verdict=_verdict(decisions),
        figures=(
            Figure("Realised saving", money(saved), _interval(decisions.saving)),
            Figure("Precision", share(decisions.precision.value), f"recall {share(decisions.recall.value)}"),
            Figure("Labelled", count(found.pairs), f"of {count(found.pairs_published)} published pairs"),
        ),
        shown=PUBLISHED,
        policies=policies,
        series=_trend(policies, evaluations, costs),
        tables=tuple(table for table in tables if table is not None),
        facts=_facts(publication, found, costs),
        note="Policies are scored with what was known at the end of the week, without a limit of checks per "
        "store. The labels need later weeks; what was flagged did not see them and was not changed.",
    )


def decisions_table(decisions: Mapping[str, Decisions]) -> Table:
    """What each way of choosing flags came to with the costs of the week, the largest saving first."""
    order = sorted(decisions, key=lambda name: (-decisions[name].saving.value, name))
    rows = tuple(
        (
            f"{clean(name)} *" if name == PUBLISHED else clean(name),
            count(one.flagged),
            count(one.found),
            share(one.precision.value),
            share(one.recall.value),
            money(one.cost.value),
            money(one.saving.value),
            _interval(one.saving),
        )
        for name in order
        for one in (decisions[name],)
    )
    columns = ("Policy", "Flags", "Right", "Precision", "Recall", "Cost", "Saving", "90% of the saving")
    ignoring = next(iter(decisions.values())).cost_ignoring
    return Table(
        "With the costs of the week",
        columns,
        rows,
        frozenset(range(1, len(columns))),
        f"Doing nothing would have cost {money(ignoring.value)}. Saving is that minus what false alarms and "
        "misses cost, over the pairs with a label; intervals over stores.",
    )


def _trend(
    policies: Mapping[str, Measures], evaluations: Sequence[Mapping[str, Any]], costs: str
) -> dict[str, list[WeekPoint]]:
    """Of each week the newest publication that was evaluated."""
    newest: dict[str, Mapping[str, Any]] = {}
    for one in sorted(evaluations, key=lambda one: (one["week"], one["publication"])):
        if one["costs"] == costs:
            newest[one["week"]] = one
    return {
        name: [
            WeekPoint(week, own["cost_ratio"], *(own["cost_ratio"] if end is None else end for end in ends))
            for week, one in newest.items()
            if (own := one["policies"].get(name)) is not None and own["cost_ratio"] is not None
            for ends in (own["cost_ratio_interval"],)
        ]
        for name in compared(policies, PUBLISHED)
    }


def _facts(publication: Publication, found: PublishedMeasures, costs: str) -> Table:
    rows = (
        ("Publication", f"{publication.id}, version {publication.version} of the week"),
        ("Run", publication.run_id),
        ("Published", f"{publication.published_at:%Y-%m-%d %H:%M} by {clean(publication.published_by)}"),
        ("Label", f"{found.label_rule}, version {found.label_version}"),
        ("Uniform costs", costs),
        ("Anomalies", f"{count(found.anomalies)} ({share(found.anomalies / found.pairs)})"),
        ("Data of the labels", found.data_hash),
        ("Data of the run", publication.data_hash),
    )
    return Table("How", ("", ""), rows)


def _verdict(decisions: Decisions) -> str:
    ignoring, cost = decisions.cost_ignoring.value, decisions.cost.value
    if ignoring == 0:
        return "No labelled pair was an anomaly, so every flag was a false alarm."
    return f"The decisions cost {money(cost)} where doing nothing would have cost {money(ignoring)}."


def _interval(one: Estimate) -> str:
    return f"{money(one.low)} to {money(one.high)}" if one.low == one.low else "unknown"
