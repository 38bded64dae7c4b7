"""A past-only backtest of every policy on any sales file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ew_pipeline.backtest.backtest import Backtest, Verdict, backtest, verdict
from ew_pipeline.backtest.history import SalesHistory, read_history, read_truth
from ew_pipeline.backtest.policies import Policy
from ew_pipeline.backtest.priced import COSTS
from ew_pipeline.backtest.registry import chosen_policies, default_policy
from ew_pipeline.backtest.view import LabelSource, RuleLabels
from ew_pipeline.core.console import messages
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.week import RULES


@dataclass(frozen=True)
class BacktestRequest:
    """What to evaluate, by which labels and costs; see the options of `ew evaluate`."""

    sales: str
    first: str | None = None
    last: str | None = None
    listing: str | None = None
    label: str = "text"
    truth: str | None = None
    truth_column: str | None = None
    truth_threshold: float = 0.5
    costs: str = "text"
    segment_by: str | None = None
    history: bool = True
    calibrate: bool = True
    zero_rule: str = "auto"
    policies: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class BacktestReport:
    """A finished backtest, its verdict, and what it was made from."""

    request: BacktestRequest
    result: Backtest
    default: str
    verdict: Verdict
    rule: str
    table: SalesHistory


def run_backtest(request: BacktestRequest, more: Sequence[Policy] = ()) -> BacktestReport:
    """Read, score every week with what was known at its end, measure. ``more``: other authors' policies."""
    if request.truth is None and request.label not in RULES:
        raise UsageError(f"there is no label {request.label!r}.", f"choose one of {', '.join(RULES)}.")
    default = default_policy(history=request.history, calibrate=request.calibrate)
    chosen_policies(request.policies, default, more=more)  # a wrong name is said before the data are read
    if request.costs not in COSTS:
        raise UsageError(f"there are no costs {request.costs!r}.", f"choose one of {', '.join(COSTS)}.")
    table = read_history(request.sales, request.listing, request.zero_rule, segment_by=request.segment_by)
    labels: LabelSource = RuleLabels(request.label)
    if request.truth is not None:
        labels = read_truth(request.truth, table, request.truth_column, request.truth_threshold)
    _announce(table)
    weeks = _range(table, request.first, request.last)
    policies = chosen_policies(request.policies, default, len(weeks) * table.panel.n_pairs, more)
    result = backtest(
        table.panel, weeks, policies, labels, say, costs=COSTS[request.costs], grouping=table.grouping
    )
    return BacktestReport(request, result, default, verdict(result, default), labels.rule, table)


def _range(table: SalesHistory, first: str | None, last: str | None) -> range:
    begin = 0 if first is None else table.position(first)
    end = table.panel.n_weeks - 1 if last is None else table.position(last)
    if begin > end:
        raise UsageError(f"--from {first} lies after --to {last}.", "exchange them.")
    inside = range(max(begin, 0), min(end, table.panel.n_weeks - 1) + 1)
    if not inside:
        raise UsageError(
            f"no week of the sales lies between {first} and {last}: they run from "
            f"{table.panel.weeks[0]} to {table.panel.weeks[-1]}.",
            "choose from them.",
        )
    return inside


def _announce(table: SalesHistory) -> None:
    panel = table.panel
    say(
        f"{panel.store_ids.size} stores, {panel.sku_ids.size} SKUs, {panel.n_pairs} pairs, "
        f"{panel.weeks[0]} to {panel.weeks[-1]}; zeros are {table.zero_rule}"
    )
    if table.ignored:
        say(f"columns not used: {', '.join(table.ignored)}")


def say(line: str) -> None:
    """A line for the person who watches."""
    messages().print(line, style="dim", soft_wrap=True, markup=False)
