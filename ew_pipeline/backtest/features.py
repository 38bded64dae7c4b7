"""Probabilities without labels, and the features a calibration is learnt on.

Label-free probabilities say what an anomaly is and compute its chance:

``window_drop``  P(S >= 2X), S the mean of the 5 weeks before, which are known, and the 5 after, whose sum is
                 negative binomial around the pair's level: the label of section 4.2, a week early.
``level_drop``   P(level >= X / fraction) from the detector's predictive: for records that are truly wrong.

All point one way: higher is more suspicious.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, logit

from ew_pipeline.backtest.evidence import CrossSection, Evidence
from ew_pipeline.method.paper.posterior import drop_probability

FloatArray = npt.NDArray[np.float64]

LEAST_MEAN = 0.05  # half the least S that is not zero: what a sale of zero is compared as
WEEKS_AFTER = 5.0
AFTER_SIZE = 8.0  # s0 of the five weeks to come; 4 to 20 cost within .01 of each other on three chains
PERSISTS = 0.6  # exponent of the chain's movement in the weeks to come
OWN_WEEK = 0.1  # weight of the pair's own week in its level from here on
LEVEL_CV2 = 0.05  # of a pair's level around the model, beyond what the fit itself admits
CROSS_CV2 = 0.1
# A pair that sells half of what its store and SKU suggest is often one whose level lies below that: asked
# from one week, "half its level or less" is about this share of what was suggested.
CROSS_FRACTION = 0.45
TRUTH_FRACTION = 0.4  # a stockout of half a week leaves half the sales; a record that is wrong leaves less
LIMIT = 9.0  # log-odds beyond this say nothing more
KNOTS = (-1.5, -1.0, -0.7, -0.4, 0.0, 0.5)
LEVEL_KNOTS = (-1.0, 0.0, 1.0, 2.0, 3.0)


def chain_move(evidence: Evidence) -> FloatArray:
    """How the SKU moved in the whole chain this week, from levels and trailing means alike."""
    return np.asarray(2.0 / (1.0 / evidence.sku_move + 1.0 / evidence.sku_move_trailing))


def window_drop(evidence: Evidence, *, pair_specific: bool, size: float = AFTER_SIZE) -> FloatArray:
    """P(X <= S/2), or P(X <= R S/2) with R the chain's movement of the SKU when ``pair_specific``."""
    move = chain_move(evidence)
    x = np.where(evidence.units > 0, evidence.units, LEAST_MEAN)
    if pair_specific:
        x = x / move
        ahead = evidence.level
    else:
        # What moved the whole SKU this week largely persists; a pair's own week says little.
        moved = evidence.level * np.clip(move, 1.0 / 3.0, 3.0) ** PERSISTS
        ahead = (1.0 - OWN_WEEK) * moved + OWN_WEEK * evidence.units
    needed = 20.0 * x - 5.0 * evidence.trailing
    return _at_least(np.ceil(np.maximum(needed, 0.0) - 1e-9), WEEKS_AFTER * ahead, size)


def level_drop(evidence: Evidence, fraction: float = TRUTH_FRACTION) -> FloatArray:
    """P(level >= X / fraction) by the detector with history."""
    cv2 = evidence.expected_cv**2 + LEVEL_CV2
    return drop_probability(evidence.units, evidence.expected, cv2, fraction)


def cross_drop(week: CrossSection, fraction: float, *, zero_counts_as: float) -> FloatArray:
    """P(level >= X / fraction) from the week alone."""
    return drop_probability(
        week.units, week.expected, week.expected_cv2 + CROSS_CV2, fraction, zero_counts_as=zero_counts_as
    )


def few_features(e: Evidence) -> dict[str, FloatArray]:
    """The handful that fits where anomalies are rare."""
    x = e.units
    return {
        "log x/trailing": np.log((x + 0.5) / (e.trailing + 0.5)),
        "log x/level": np.log((x + 0.5) / (e.level + 0.25)),
        "log x/expected": np.log((x + 0.5) / (e.expected + 0.25)),
        "log trailing": np.log(e.trailing + 0.25),
        "zero": (x == 0).astype(np.float64),
        "posterior": log_odds(e.posterior),
        "level drop": log_odds(level_drop(e)),
    }


def many_features(e: Evidence) -> dict[str, FloatArray]:
    """Piecewise linear in the log-ratios, with their change by volume and by the pair's own spread."""
    x = e.units
    log_mean = np.log(e.trailing + 0.25)
    zero = (x == 0).astype(np.float64)
    found = {"log trailing": log_mean, "zero": zero, "zero by trailing": zero * log_mean}
    found |= _hinges("log trailing", log_mean, LEVEL_KNOTS)
    ratios = {
        "log x/trailing": np.log((x + 0.5) / (e.trailing + 0.5)),
        "log x/expected": np.log((x + 0.5) / (e.expected + 0.25)),
        "log x/level": np.log((x + 0.5) / (e.level + 0.25)),
        "log x/moved trailing": np.log((x + 0.5) / (e.trailing * e.sku_move_trailing + 0.5)),
    }
    for name, value in ratios.items():
        found |= {name: value, f"{name} by trailing": value * log_mean, f"{name} by spread": value * e.spread}
        found |= _hinges(name, value, KNOTS)
    for size in (4.0, 20.0):
        found[f"window drop {size:g}"] = log_odds(window_drop(e, pair_specific=False, size=size))
        found[f"pair window drop {size:g}"] = log_odds(window_drop(e, pair_specific=True, size=size))
    found |= {
        "level drop": log_odds(level_drop(e)),
        "level drop half": log_odds(level_drop(e, 0.5)),
        "posterior": log_odds(e.posterior),
        "spread": e.spread,
        "log SKU move": np.log(e.sku_move),
        "log SKU move trailing": np.log(e.sku_move_trailing),
        "log store move": np.log(e.store_move),
        "zero share": e.zero_share,
        "promo": e.promo,
        "promo past": e.promo_past,
    }
    for name in ("last", "trailing", "mean_2", "mean_10", "mean_26"):
        found[f"log {name}/level"] = np.log((getattr(e, name) + 0.5) / (e.level + 0.5))
    return found


def cross_features(week: CrossSection) -> dict[str, FloatArray]:
    """What one week alone offers."""
    x = week.units
    ratio = np.log((x + 0.5) / (week.expected + 0.25))
    log_mean = np.log(week.expected + 0.25)
    found = {
        "log x/expected": ratio,
        "log expected": log_mean,
        "log x/expected by expected": ratio * log_mean,
        "zero": (x == 0).astype(np.float64),
        "posterior": log_odds(week.posterior),
        "drop": log_odds(cross_drop(week, 0.5, zero_counts_as=LEAST_MEAN)),
    }
    return found | _hinges("log x/expected", ratio, KNOTS)


def log_odds(probability: FloatArray) -> FloatArray:
    """logit, kept within +-9."""
    return np.asarray(np.clip(logit(np.clip(probability, 1e-6, 1.0 - 1e-6)), -LIMIT, LIMIT))


def _hinges(name: str, value: FloatArray, knots: Sequence[float]) -> dict[str, FloatArray]:
    return {f"{name} > {knot:g}": np.maximum(value - knot, 0.0) for knot in knots}


def _at_least(count: FloatArray, mean: FloatArray, size: float) -> FloatArray:
    """P(N >= count) of a negative binomial with this mean: the incomplete beta function."""
    share = mean / (mean + size)
    return np.where(count > 0, betainc(np.maximum(count, 1.0), size, share), 1.0)
