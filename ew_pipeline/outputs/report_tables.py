"""The tables below the fold: the fit, the gate, the data, the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ew_pipeline.core.errors import name_some
from ew_pipeline.infer.theta import POOLED, OverWeeks
from ew_pipeline.outputs.words import clean, count, plural, seconds, share
from ew_pipeline.results import WeekResult


@dataclass(frozen=True)
class Table:
    """Cells as text. ``numeric``: columns that are read as numbers, aligned right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    note: str = ""


def segments_table(result: WeekResult) -> Table:
    """One line per fitted matrix, the pooled theta last when there are several."""
    rows = [
        (
            clean(segment.name),
            count(segment.stores),
            count(segment.skus),
            count(segment.pairs),
            _estimate(segment.theta.anomaly_rate, segment.theta.anomaly_rate_interval),
            _estimate(segment.theta.alpha, segment.theta.alpha_interval),
            *_over_weeks(result.over_weeks.get(segment.name)),
            str(segment.rank),
            _noise(segment.noise, segment.dispersion_size),
            segment.anomaly,
            segment.mode,
            "yes" if segment.converged else "no",
            f"{segment.null_gain:,.1f}",
            seconds(segment.seconds),
        )
        for segment in result.segments
    ]
    if len(rows) > 1:
        pooled = result.pooled
        rows.append(
            (POOLED, "", "", count(sum(segment.pairs for segment in result.segments)))
            + (_estimate(pooled.anomaly_rate, pooled.anomaly_rate_interval),)
            + (_estimate(pooled.alpha, pooled.alpha_interval),)
            + _over_weeks(result.over_weeks.get(POOLED))
            + ("",) * 7
        )
    return Table(
        "Fit",
        (
            "Segment",
            "Stores",
            "SKUs",
            "Pairs",
            "Records wrong (p_A)",
            "Sales left (alpha)",
            "p_A, earlier weeks counted in",
            "alpha, earlier weeks counted in",
            "Rank",
            "Noise",
            "Anomaly",
            "Mode",
            "Converged",
            "Gain by anomalies (nats)",
            "Time",
        ),
        tuple(rows),
        frozenset({1, 2, 3, 8, 13, 14}),
        "Estimates with their 90% intervals; the drift chart follows those of the week alone.",
    )


def gate_table(result: WeekResult) -> Table:
    rows = tuple(
        (clean(check.name), "passed" if check.passed else "failed", clean(check.words))
        for check in result.gate
    )
    return Table("Gate", ("Check", "Result", "In words"), rows)


def coverage_table(result: WeekResult) -> Table:
    c = result.coverage
    rules = {
        "explicit": "zeros have rows of their own",
        "listing": "a ranged pair with no row sold zero",
        "inferred": f"a pair that sold in the last {result.config.inferred_weeks} weeks counts as ranged",
    }
    missing = (
        f": {name_some(map(clean, c.stores_missing), len(c.stores_missing))}" if c.stores_missing else ""
    )
    promoted = "left out" if result.config.promotions == "exclude" else "compared like any other"
    past = f"{c.history_weeks} weeks" if c.history_weeks else "none: cross-section only"
    rows = (
        ("Stores that reported", f"{count(c.stores_reporting)} of {count(c.stores_expected)}"),
        ("Stores that did not", f"{count(len(c.stores_missing))}{missing}"),
        ("Pairs observed", count(c.pairs_observed)),
        ("… with zero sales", f"{count(c.pairs_zero)} ({share(c.pairs_zero / max(c.pairs_observed, 1))})"),
        ("… of them with no row in the file", count(c.pairs_zero_filled)),
        ("Pairs scored", count(result.totals.pairs)),
        ("Pairs not scored, too little data", count(c.pairs_not_scored)),
        ("Pairs sold but not listed, left out", count(c.pairs_unlisted)),
        (f"Pairs on promotion, {promoted}", count(c.pairs_promoted)),
        ("What a missing row means", f"{c.zero_rule}: {rules.get(c.zero_rule, '')}"),
        ("Own past used", past),
    )
    return Table("Coverage", ("", ""), rows)


def quarantine_table(result: WeekResult) -> Table:
    contract = result.contract
    rows = tuple(
        (
            clean(fault.table),
            clean(fault.reason),
            count(fault.rows),
            name_some(map(clean, fault.examples), max(fault.rows, len(fault.examples))),
        )
        for fault in contract.faults
    )
    read = ", ".join(f"{clean(name)} {count(rows)}" for name, rows in contract.rows_read.items())
    note = f"Rows read: {read or 'none'}. {plural(contract.rows_quarantined, 'row')} set aside."
    if contract.rows_known:
        note += f" {count(contract.rows_known)} rows of earlier weeks were checked by a run before this one."
    if contract.quarantine is not None:
        note += f" Every one with its reason: {contract.quarantine}."
    ignored = [f"{clean(t)}: {', '.join(map(clean, names))}" for t, names in contract.ignored_columns.items()]
    if ignored:
        note += f" Columns not used: {'; '.join(ignored)}."
    return Table("Quarantine", ("Table", "Fault", "Rows", "For example"), rows, frozenset({2}), note)


def timings_table(result: WeekResult) -> Table:
    total = sum(result.timings.values())
    rows = [
        (clean(step), seconds(value), share(value / total) if total > 0 else "")
        for step, value in result.timings.items()
    ]
    rows.append(("all steps", seconds(total), ""))
    return Table("Time", ("Step", "Time", "Share"), tuple(rows), frozenset({1, 2}))


def provenance_table(result: WeekResult) -> Table:
    origin = result.provenance
    rows: Sequence[tuple[str, str]] = (
        ("Run", result.run_id),
        ("Started", f"{result.started_at:%Y-%m-%d %H:%M:%S %Z}".strip()),
        ("Data", origin.data_hash),
        ("Configuration", origin.config_hash),
        ("Code", origin.code_version),
        ("Seed", str(origin.seed)),
        ("MLflow run", origin.mlflow_run_id or "none"),
        ("Flow run", origin.flow_run_id or "none"),
        ("Libraries", ", ".join(f"{name} {version}" for name, version in origin.environment.items())),
    )
    return Table("Provenance", ("", ""), tuple((name, clean(value)) for name, value in rows))


def _estimate(value: float, interval: tuple[float, float]) -> str:
    return f"{share(value)} ({share(interval[0])}–{share(interval[1])})"


def _over_weeks(pooled: OverWeeks | None) -> tuple[str, str]:
    if pooled is None:
        return "–", "–"
    theta = pooled.theta
    return (
        _estimate(theta.anomaly_rate, theta.anomaly_rate_interval),
        _estimate(theta.alpha, theta.alpha_interval),
    )


def _noise(name: str, size: float) -> str:
    return name.replace("_", " ") + ("" if math.isinf(size) else f", size {size:.3g}")
