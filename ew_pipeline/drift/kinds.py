"""What is followed, on which scale, and what a lasting change of it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import logit

Group = Literal["anomaly", "composition", "dispersion", "outcome"]
LEAST, MOST = 1e-6, 1.0 - 1e-6
NEXT_TO_NOTHING = 0.1


def log_odds(value: float) -> float:
    return float(logit(min(max(value, LEAST), MOST)))


def share_left(value: float) -> float:
    """Log odds after a tenth is added: of what anomalies leave, 2% and 6% are the same to anybody, and
    log odds alone would make three standard deviations of it."""
    return log_odds((value + NEXT_TO_NOTHING) / (1.0 + NEXT_TO_NOTHING))


def log(value: float) -> float:
    return float(np.log(max(value, LEAST)))


def same(value: float) -> float:
    return float(value)


@dataclass(frozen=True)
class Kind:
    """A series.

    Attributes
    ----------
    scale : from the value to the scale of the chart.
    floor : the least standard deviation from week to week on that scale. A lasting change of less than
        about one and a half floors is never reported, however steady the series was: it is of no use to know.
    explains : how far a change of this series alone has been seen to move the log odds of p_A (and three
        times that for alpha); for the dispersion, times its own change. Beyond, the anomalies have changed
        as well.
    alarms : False for what only follows from the others, such as the flagged share.
    look_at : what to look at when it has changed.
    """

    name: str
    title: str
    group: Group
    scale: Callable[[float], float]
    floor: float
    style: Literal["percent", "number", "whole"]
    explains: float = 0.0
    alarms: bool = True
    look_at: str = ""


RATE, ALPHA, DISPERSION = "anomaly_rate", "alpha", "dispersion"
REPORTING, CARRIED = "stores_reporting", "carried_over"

KINDS: tuple[Kind, ...] = (
    Kind(
        RATE,
        "records wrong (p_A)",
        "anomaly",
        log_odds,
        0.05,
        "percent",
        look_at="deliveries, stock counts and shelf processes of the weeks since; the stores with most flags",
    ),
    Kind(
        ALPHA,
        "sales left (alpha)",
        "anomaly",
        share_left,
        0.15,
        "percent",
        look_at="how deep the flagged pairs fell: sold out at once, or sales that fade",
    ),
    Kind(
        DISPERSION,
        "overdispersion (1/s0)",
        "dispersion",
        log,
        0.06,
        "number",
        explains=2.5,
        look_at="promotions or events that only some stores had, and merged or doubled SKUs",
    ),
    Kind(
        "observed_share",
        "observed share of the matrix",
        "composition",
        log_odds,
        0.1,
        "percent",
        0.8,
        look_at="the listing, and stores or days missing from the sales",
    ),
    Kind(
        "demand",
        "expected sales per pair",
        "composition",
        log,
        0.15,  # holidays move demand by a third for two weeks, and theta not at all
        "number",
        0.3,
        look_at="season, price changes, and units sold in another measure",
    ),
    Kind(
        "rank",
        "rank",
        "composition",
        same,
        0.7,  # chance may choose the next rank for weeks; the spectrum says whether it matters
        "whole",
        0.8,
        look_at="new kinds of stores or SKUs in the matrix; consider --segment-by",
    ),
    Kind(
        "spectrum",
        "effective number of factors",
        "composition",
        log,
        0.1,  # a factor of a tenth of the first, found in some weeks only, moves it by .17
        "number",
        0.8,
        look_at="new kinds of stores or SKUs in the matrix; consider --segment-by",
    ),
    Kind(
        CARRIED,
        "pairs whose store and SKU were there four weeks ago",
        "composition",
        same,
        0.03,
        "percent",
        0.3,
        look_at="range reviews, and ids that were renamed",
    ),
    Kind(
        "skus",
        "SKUs",
        "composition",
        log,
        0.05,
        "whole",
        0.3,
        look_at="range reviews and delistings, and ids that were renamed",
    ),
    Kind(
        "stores",
        "stores",
        "composition",
        log,
        0.05,
        "whole",
        0.3,
        look_at="stores opened, closed, or without data",
    ),
    Kind(
        REPORTING,
        "stores that reported",
        "composition",
        same,
        0.02,
        "percent",
        0.3,
        look_at="the feeds of the stores that are missing",
    ),
    Kind("flagged_share", "flagged share", "outcome", log_odds, 0.1, "percent", alarms=False),
    Kind("expected_cost", "expected cost per pair", "outcome", log, 0.1, "number", alarms=False),
)
BY_NAME = {kind.name: kind for kind in KINDS}
