"""What a saved model says of sales: those it was fitted on, and others.

==================================  =================================  ===================================
row of the frame                    anomaly_probability                expected_units
==================================  =================================  ===================================
fitted pair, the units it sold      as published, bit by bit           as published
fitted pair, other units            from what the pair would sell      as if the pair had not been seen
                                    had it not been seen (cavity)
pair not observed, both ids known   plug-in from the factors           left . right (times level)
an id that was not in the week      NaN                                NaN
units missing                       NaN                                as for other units
==================================  =================================  ===================================

Where the published probability is not the fit's own but learnt from past weeks (``priced``), only the first
line has one: what another number of units would have been priced at needs those weeks.

A model with history has its low rank on the ratio to the pair's level, so a pair that was not observed
needs a column ``level`` in the frame; without it the row is NaN.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ew_pipeline.core.arrays import Bool, Float, Int64
from ew_pipeline.core.errors import DataError, name_some
from ew_pipeline.method.noise import NegativeBinomial
from ew_pipeline.method.paper.posterior import drop_probability, healthy_probability
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.sales_matrix import SalesMatrix

REQUIRED = ("store_id", "sku_id", "units")
RESULT = ("anomaly_probability", "expected_units")
PLUG_IN_MODES = ("paper", "paper-practical")  # whose f takes the rate as known
LEVEL_FREE_MODES = ("paper", "paper-practical")  # whose factors are of the sales, level or not


def predict(
    fit: DetectorFit, frame: pd.DataFrame, *, uses_level: bool, priced: Float | None = None
) -> pd.DataFrame:
    """A frame with the index of ``frame`` and the columns of ``RESULT``."""
    units = _checked_units(frame)
    row = _codes(frame["store_id"], fit.sales.store_ids)
    col = _codes(frame["sku_id"], fit.sales.sku_ids)
    entry = _entries(fit.sales, row, col)
    fitted = entry >= 0
    probability = np.full(units.size, np.nan)
    expected = np.full(units.size, np.nan)

    same = fitted.copy()
    same[fitted] = fit.sales.counts[entry[fitted]] == units[fitted]
    probability[same] = (fit.anomaly_probability_ if priced is None else priced)[entry[same]]
    expected[same] = fit.expected_sales_[entry[same]]

    other = fitted & ~same
    mean, cv2 = np.full(units.size, np.nan), np.full(units.size, np.nan)
    mean[other] = fit.cavity_sales_[entry[other]]
    cv2[other] = fit.cavity_cv_[entry[other]] ** 2
    unseen = (row >= 0) & (col >= 0) & ~fitted
    if unseen.any():
        ratio = np.einsum("er,er->e", fit.factors_.left[row[unseen]], fit.factors_.right[col[unseen]])
        mean[unseen] = ratio * _level(fit, frame, unseen, uses_level)
        cv2[unseen] = np.median(fit.cavity_cv_) ** 2  # of such a pair nothing is known but that it is typical
    expected[~same] = mean[~same]
    scored = ~same & np.isfinite(mean) & np.isfinite(units)
    if scored.any() and priced is None:
        probability[scored] = _plug_in(fit, units[scored], mean[scored], cv2[scored])
    return pd.DataFrame(dict(zip(RESULT, (probability, expected), strict=True)), index=frame.index)


def _plug_in(fit: DetectorFit, units: Float, mean: Float, cv2: Float) -> Float:
    if fit.probability == "drop":
        return drop_probability(units, mean, cv2, fit.drop_fraction)
    spread = 1.0 / fit.dispersion_size_ + (0.0 if fit.mode_ in PLUG_IN_MODES else cv2)
    size = np.divide(1.0, spread, out=np.full(units.size, np.inf), where=np.asarray(spread > 0.0))
    theta = fit.theta_
    healthy = healthy_probability(
        units, mean, theta.alpha, theta.anomaly_rate, NegativeBinomial(size), fit.anomaly_model
    )
    return np.asarray(1.0 - healthy)


def _level(fit: DetectorFit, frame: pd.DataFrame, unseen: Bool, uses_level: bool) -> Float | float:
    if not uses_level or fit.mode_ in LEVEL_FREE_MODES:
        return 1.0
    if "level" not in frame.columns:
        return np.nan
    return frame["level"].to_numpy(dtype=np.float64, na_value=np.nan)[unseen]


def _checked_units(frame: pd.DataFrame) -> Float:
    missing = [name for name in REQUIRED if name not in frame.columns]
    if missing:
        raise DataError(
            f"the frame has no column {', '.join(missing)}.", f"pass {', '.join(REQUIRED)}, one row per pair."
        )
    units = pd.to_numeric(frame["units"], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = np.flatnonzero((units < 0.0) | (units != np.floor(units)) & ~np.isnan(units) | np.isinf(units))
    if wrong.size:
        raise DataError(
            f"{wrong.size} units are not whole numbers of at least 0 (rows {name_some(wrong, wrong.size)}).",
            "pass units sold.",
        )
    return units


def _codes(ids: pd.Series[str], known: NDArray[np.str_]) -> Int64:
    """Position of each id among the known ones, -1 where it is not among them. Ids are compared as text."""
    code, distinct = pd.factorize(ids)  # few ids, many rows
    position = pd.Index(known.astype(object)).get_indexer(pd.Index([str(value) for value in distinct]))
    return np.asarray(np.append(position, -1)[code], dtype=np.int64)  # a missing id has code -1


def _entries(sales: SalesMatrix, row: Int64, col: Int64) -> Int64:
    """Position of each pair among the observed ones, -1 where it was not observed."""
    m = np.int64(sales.shape[1])
    observed = sales.rows * m + sales.cols  # ascending: the entries are in row-major order
    wanted = np.where((row >= 0) & (col >= 0), row * m + col, -1)
    at = np.searchsorted(observed, wanted)
    at[at == observed.size] = 0
    return np.where((wanted >= 0) & (observed[at] == wanted), at, -1)
