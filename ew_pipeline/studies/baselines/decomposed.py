"""The published methods as policies: X = M + A + E, flagged where A is not zero.

Which share of the pairs A takes is tuned by cost on labels that have matured, the same information our own
calibration has; M is not fitted again for it, since with M fixed the share only moves the limit. Two-sided as
published, and one-sided: sales above M are no lost sales.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ew_pipeline.backtest.policies import Score
from ew_pipeline.backtest.view import PastView
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.studies.baselines.drmf import drmf
from ew_pipeline.studies.baselines.low_rank import LowRank
from ew_pipeline.studies.baselines.rmc import rmc
from ew_pipeline.studies.baselines.stable_pcp import stable_pcp

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Method = Callable[[SalesMatrix, int, float], LowRank]

METHODS: dict[str, Method] = {"drmf": drmf, "stable-pcp": stable_pcp, "rmc": rmc}
RANK = 3
SHARE = 0.05  # of anomalies while no label is known, and in the fit
SHARES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
TUNED_ON = 8  # past weeks


@dataclass(frozen=True)
class Decomposed:
    """One of the three methods."""

    method: str
    one_sided: bool = False

    @property
    def name(self) -> str:
        return f"{self.method}-one-sided" if self.one_sided else self.method

    def score(self, view: PastView) -> Score:
        size = self._size(view, view.t)
        share = self._tuned_share(view)
        flags = largest(size, share).astype(np.float64)
        return Score(flags, size / max(float(size.max()), 1e-9))

    def _size(self, view: PastView, week: int) -> FloatArray:
        """How far each pair observed in the week lies from M; below it only, if one-sided."""
        what = f"fitted by {self.method}"
        fitted = view.memory.get(what, week, np.ndarray)
        if fitted is None:
            sales = view.panel.sales(week)
            fitted = view.memory.keep(what, week, METHODS[self.method](sales, RANK, SHARE).at(sales))
        units = view.panel.units[view.panel.observed[:, week], week]
        return distance(units, fitted, one_sided=self.one_sided)

    def _tuned_share(self, view: PastView) -> float:
        wrong = np.zeros(len(SHARES))
        labels = view.mature(TUNED_ON)
        for week, known in labels.items():
            pairs = np.flatnonzero(view.panel.observed[:, week])
            size, labelled = self._size(view, week), known.known[pairs]
            truth = known.anomaly[pairs][labelled]
            # A hard flag costs the same whether it is false or missing: half the highest cost, on average.
            wrong += [float((largest(size, share)[labelled] != truth).sum()) for share in SHARES]
        return SHARES[int(np.argmin(wrong))] if labels else SHARE


def distance(units: FloatArray, fitted: FloatArray, *, one_sided: bool) -> FloatArray:
    """How far sales lie from M; only how far below it, if one-sided."""
    gap = fitted - units
    return np.asarray(np.maximum(gap, 0.0) if one_sided else np.abs(gap))


def largest(size: FloatArray, share: float) -> BoolArray:
    """Where A is not zero: the largest ``share`` of the distances, and never a pair on its expectation."""
    if share <= 0.0:
        return np.zeros(size.size, dtype=np.bool_)
    return np.asarray(size > np.quantile(size, 1.0 - share))


def published_methods() -> Sequence[Decomposed]:
    """All three, two-sided and one-sided."""
    return [Decomposed(method, one_sided) for method in METHODS for one_sided in (False, True)]
