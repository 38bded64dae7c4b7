"""Price every scored pair and choose which shelves to walk to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ew_pipeline.algorithm.costs import Costs
from ew_pipeline.algorithm.decision import expected_saving, flag_by_cost, flag_with_cap
from ew_pipeline.algorithm.types import Bool, Float, Int64
from ew_pipeline.data.sales_matrix import SalesMatrix
from ew_pipeline.monitor.checks.draw import DRAWN, random_slice
from ew_pipeline.publish.reasons import reasons
from ew_pipeline.settings import RunConfig
from ew_pipeline.week import Week
from ew_pipeline.weekly.fit import FittedSegment


def decide(
    fitted: Sequence[FittedSegment], probability: Sequence[Float], week: Week, config: RunConfig
) -> pd.DataFrame:
    """The scores of all segments below each other, with the pairs to check flagged.

    ``probability``: per segment, what is priced, in the order of its matrix.

    Section 3.1's rule, f c0 <= (1 - f) c1, with two exceptions. A pair that sold at least what it was
    expected to is not flagged: under exponential onset a very high count can look anomalous, but no shelf
    is empty there. With a limit of checks per store, the checks that save most are kept, over all segments.

    Beside the flags, ``config.random_check_share`` of the other pairs is drawn to be checked, whatever the
    limit: that is what tells how many wrong records are missed.
    """
    scores = _all_scores(fitted, probability)
    return decided(scores, _costs(fitted, scores), week, config)


def decided(
    scores: pd.DataFrame, costs: Costs, week: Week, config: RunConfig, part: tuple[int, ...] = ()
) -> pd.DataFrame:
    """The same of scores that are there: all of some stores, which ``part`` tells from the others."""
    f = 1.0 - scores["anomaly_probability"].to_numpy()
    saving = expected_saving(f, costs)
    flags = _flags(f, costs, scores, config.max_checks_per_store)
    decided = {
        "threshold": np.broadcast_to(np.asarray(costs.threshold), f.shape),
        "expected_saving": saving,
        "flagged": flags,
        "store_rank": _places(scores, saving, flags),
        "reasons": _reasons(scores, flags),
    }
    scores = pd.DataFrame({**scores, **decided}, copy=False)  # one by one, each column would be copied
    if config.random_check_share > 0:
        seed = config.detector.random_state
        scores[DRAWN] = random_slice(scores, week, config.random_check_share, seed, part)
    return scores


def _all_scores(fitted: Sequence[FittedSegment], probability: Sequence[Float]) -> pd.DataFrame:
    # Ids are categorical: ten million pairs share a few thousand of them, and codes sort quickly.
    stores = sorted({str(store) for one in fitted for store in one.fit.sales.store_ids})
    skus = sorted({str(sku) for one in fitted for sku in one.fit.sales.sku_ids})
    segments = [one.given.name for one in fitted]
    parts = [
        _score(one, values, stores, skus, segments) for one, values in zip(fitted, probability, strict=True)
    ]
    scores = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
    if _in_order(scores):  # as one matrix of sorted ids is
        return scores
    return scores.sort_values(["store_id", "sku_id"], kind="stable", ignore_index=True)


def _in_order(scores: pd.DataFrame) -> bool:
    store, sku = (scores[name].cat.codes.to_numpy() for name in ("store_id", "sku_id"))
    same, next_sku = store[1:] == store[:-1], sku[1:] > sku[:-1]
    return bool(((store[1:] > store[:-1]) | (same & next_sku)).all())


def _costs(fitted: Sequence[FittedSegment], scores: pd.DataFrame) -> Costs:
    """The costs of the scores; two numbers where they are the same for all, as without a table of costs."""
    first = fitted[0].given.costs
    if len(fitted) == 1 and np.ndim(first.false_alarm) == np.ndim(first.missed) == 0:
        return first
    return Costs(scores["cost_false_alarm"].to_numpy(), scores["cost_missed"].to_numpy())


def _score(
    one: FittedSegment, probability: Float, stores: list[str], skus: list[str], segments: list[str]
) -> pd.DataFrame:
    given, fit = one.given, one.fit
    return score_frame(
        fit.sales,
        given.scored,
        given.costs,
        expected=fit.expected_sales_,
        level=given.level,
        posterior=fit.posterior_,
        probability=probability,
        ids=(stores, skus),
        segment=(given.name, segments),
    )


def score_frame(
    sales: SalesMatrix,
    scored: Bool,
    costs: Costs,
    *,
    expected: Float,
    level: Float | None,
    posterior: Float,
    probability: Float,
    ids: tuple[list[str], list[str]],
    segment: tuple[str, list[str]],
) -> pd.DataFrame:
    """A row for each pair that is ``scored``. ``ids``: all stores and SKUs, sorted; ``segment``: the name,
    and all names."""
    kept = slice(None) if scored.all() else scored
    c0, c1 = costs.broadcast(sales.n_observed)
    levels = level if level is not None else np.broadcast_to(np.nan, sales.n_observed)
    name, names = segment
    return pd.DataFrame(
        {
            "store_id": _ids(sales.store_ids, sales.rows[kept], ids[0]),
            "sku_id": _ids(sales.sku_ids, sales.cols[kept], ids[1]),
            "segment": pd.Categorical.from_codes(
                np.full(np.count_nonzero(scored), names.index(name), np.int16), pd.Index(names)
            ),
            "units": sales.counts[kept].astype(np.int64),
            "expected_units": expected[kept],
            "level": levels[kept],
            "posterior": posterior[kept],
            "anomaly_probability": probability[kept],
            "cost_false_alarm": c0[kept],
            "cost_missed": c1[kept],
        },
        copy=False,
    )


def _ids(own: npt.NDArray[np.str_], codes: npt.NDArray[np.int32], all_ids: list[str]) -> pd.Categorical[str]:
    place = np.searchsorted(np.asarray(all_ids, dtype=str), np.asarray(own, dtype=str)).astype(np.int32)
    return pd.Categorical.from_codes(place[codes], categories=pd.Index(all_ids), ordered=True)


def _flags(f: Float, costs: Costs, scores: pd.DataFrame, cap: int | None) -> Bool:
    too_low = (scores["units"] < scores["expected_units"]).to_numpy()
    if cap is None:
        return np.asarray(flag_by_cost(f, costs) & too_low)
    flags = np.zeros(f.size, dtype=bool)
    entry = np.flatnonzero(too_low)
    store = scores["store_id"].cat.codes.to_numpy()
    c0, c1 = costs.broadcast(f.size)
    flags[entry] = flag_with_cap(
        f[entry], Costs(c0[entry], c1[entry]), store[entry].astype(np.int64), cap
    ).flags
    return flags


def _places(scores: pd.DataFrame, saving: Float, flags: Bool) -> Int64:
    """1 for the best check of a store, 2 for the next; 0 for pairs that are not flagged."""
    entry = np.flatnonzero(flags)
    store = scores["store_id"].cat.codes.to_numpy()[entry].astype(np.int64)
    order = np.lexsort((entry, -saving[entry], store))  # equal savings: in the order of the SKUs
    count = np.bincount(store) if entry.size else np.zeros(0, np.int64)
    first = np.cumsum(count) - count
    places = np.zeros(flags.size, dtype=np.int64)
    places[entry[order]] = np.arange(entry.size) - first[store[order]] + 1
    return places


def _reasons(scores: pd.DataFrame, flags: Bool) -> pd.Series[str]:
    chosen = scores[flags]
    texts = reasons(
        chosen["units"].to_numpy(),
        chosen["expected_units"].to_numpy(),
        chosen["anomaly_probability"].to_numpy(),
        chosen["level"].to_numpy(),
    )
    place = np.zeros(len(scores), dtype=np.int32)  # of a pair that is not flagged: no text
    place[flags] = np.arange(1, len(texts) + 1)
    words = pa.array(["", *texts], pa.large_string()).take(pa.array(place))
    return pd.Series(words, index=scores.index, dtype="str")
