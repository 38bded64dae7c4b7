"""The page of one evaluated publication, with the weeks evaluated before it as a trend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ew_pipeline.backtest.measures import Measures
from ew_pipeline.backtest.page.content import (
    EvaluationContent,
    Figure,
    compared,
    parts_table,
    policies_table,
)
from ew_pipeline.backtest.page.pictures import WeekPoint
from ew_pipeline.backtest.published import Decisions, PublishedMeasures
from ew_pipeline.core.resample import Estimate
from ew_pipeline.ledger import Publication
from ew_pipeline.ledger.records import PUBLISHED
from ew_pipeline.outputs.report_tables import Table
from ew_pipeline.outputs.words import (
    clean,
    count,
    days,
    money,
    share,
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
