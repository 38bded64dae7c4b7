"""Price every scored pair and choose which shelves to walk to; draw a random share of the others.

Checks of flags alone say how often a flag is right, never what was missed. A small random sample of the rest,
drawn by a seed and not by anybody's choice, gives recall, p_A and calibration without that bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ew_pipeline.core.arrays import Bool, Float, Int32, Int64
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.decide.reasons import reasons
from ew_pipeline.expect.fit import FittedSegment
from ew_pipeline.method.costs import Costs
from ew_pipeline.method.paper.decision import expected_saving, flag_by_cost, flag_with_cap
from ew_pipeline.method.sales_matrix import SalesMatrix

PROBABILITY_BINS = 20
SAMPLED_PAIRS = 1_000_000  # give the same picture as all of them
AT_ONCE = 1 << 18  # pairs priced together
DRAWN = "random_check"  # the column of scores that marks the drawn pairs
Ids = list[str] | pd.Index  # an index is shared by all that is made with it


@dataclass(frozen=True, eq=False)
class ScoreTotals:
    """Counts and sums over the scored pairs, wherever their rows are.

    Attributes
    ----------
    flagged_stores : with something to check.
    units, expected_units : sums.
    expected_saving : of the flagged pairs. expected_cost_ignoring : of doing nothing, P(wrong) x missed.
    by_probability, flagged_by_probability : pairs by what is priced, in equal steps from 0 to 1.
    sample : expected_units and units of every so many pairs.
    """

    pairs: int
    flagged: int
    flagged_stores: int
    stores: int
    skus: int
    units: float
    expected_units: float
    expected_saving: float
    expected_cost_ignoring: float
    by_probability: Int64
    flagged_by_probability: Int64
    sample: pd.DataFrame

    @classmethod
    def of(cls, scores: pd.DataFrame, week_pairs: int = 0) -> ScoreTotals:
        """Of scores as ``decide`` makes them; ``week_pairs``: of the whole week, where these are a part."""
        flagged = scores["flagged"].to_numpy(dtype=bool)
        probability = scores["anomaly_probability"].to_numpy()
        steps = np.minimum((probability * PROBABILITY_BINS).astype(np.int64), PROBABILITY_BINS - 1)
        every_so_many = max(1, -(-max(week_pairs, len(scores)) // SAMPLED_PAIRS))
        return cls(
            pairs=len(scores),
            flagged=int(np.count_nonzero(flagged)),
            flagged_stores=int(scores.loc[flagged, "store_id"].nunique()),
            stores=int(scores["store_id"].nunique()),
            skus=int(scores["sku_id"].nunique()),
            units=float(scores["units"].sum()),
            expected_units=float(scores["expected_units"].sum()),
            expected_saving=float(scores.loc[flagged, "expected_saving"].sum()),
            expected_cost_ignoring=float((scores["anomaly_probability"] * scores["cost_missed"]).sum()),
            by_probability=np.bincount(steps, minlength=PROBABILITY_BINS),
            flagged_by_probability=np.bincount(steps[flagged], minlength=PROBABILITY_BINS),
            # A copy: a view of some pairs would keep the columns of all.
            sample=scores[["expected_units", "units"]].iloc[::every_so_many].copy(),
        )

    @property
    def flagged_share(self) -> float:
        return self.flagged / self.pairs if self.pairs else 0.0

    @property
    def expected_cost(self) -> float:
        """With the checks made."""
        return self.expected_cost_ignoring - self.expected_saving


def decide(
    fitted: Sequence[FittedSegment], probability: Sequence[Float], week: Week, config: RunConfig
) -> pd.DataFrame:
    """The scores of all segments below each other, with the pairs to check flagged.

    ``probability``: per segment, what is priced, in the order of its matrix.

    Section 3.1's rule, f c0 <= (1 - f) c1, with two exceptions. A pair that sold at least what it was
    expected to is not flagged: under exponential onset a very high count can look anomalous, but no shelf
    is empty there. With a limit of checks per store, the checks that save most are kept, over all segments.

    ``config.random_check_share`` of the other pairs is drawn to be checked too, whatever the limit.
    """
    scores = _all_scores(fitted, probability)
    return decided(scores, _costs(fitted, scores), week, config)


def decided(
    scores: pd.DataFrame, costs: Costs, week: Week, config: RunConfig, part: tuple[int, ...] = ()
) -> pd.DataFrame:
    """Decide for scores that are computed: all of some stores, which ``part`` tells from the others."""
    saving, flags = _priced(scores, costs)
    if config.max_checks_per_store is not None:
        flags = _capped(scores, costs, config.max_checks_per_store)
    found = {
        "threshold": np.broadcast_to(np.asarray(costs.threshold), flags.shape),
        "expected_saving": saving,
        "flagged": flags,
        "store_rank": _places(scores, saving, flags),
        "reasons": worded(scores, flags),
    }
    scores = pd.DataFrame({**scores, **found}, copy=False)  # one by one, each column would be copied
    if config.random_check_share > 0:
        seed = config.detector.random_state
        scores[DRAWN] = random_slice(scores, week, config.random_check_share, seed, part)
    return scores


def score_frame(
    sales: SalesMatrix,
    scored: Bool,
    costs: Costs,
    *,
    expected: Float,
    level: Float | None,
    posterior: Float,
    probability: Float,
    ids: tuple[Ids, Ids],
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
            "units": sales.counts[kept],
            "expected_units": expected[kept],
            "level": levels[kept],
            "posterior": posterior[kept],
            "anomaly_probability": probability[kept],
            "cost_false_alarm": c0[kept],
            "cost_missed": c1[kept],
        },
        copy=False,
    )


def random_slice(
    scores: pd.DataFrame, week: Week, share: float, seed: int, part: tuple[int, ...] = ()
) -> Bool:
    """Which rows of ``scores`` are drawn: ``share`` of the pairs that are not flagged, each equally likely.

    The same week, seed and scores draw the same pairs. A share above zero draws at least one. ``part``: which
    of a week's scores these are, where they are not all.
    """
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"the random share is {share}; it must lie in [0, 1].")
    drawn = np.zeros(len(scores), dtype=bool)
    unflagged = np.flatnonzero(~scores["flagged"].to_numpy(dtype=bool))
    size = min(unflagged.size, max(1, round(share * unflagged.size))) if share > 0 else 0
    generator = np.random.default_rng([seed, week.index, *part])
    drawn[generator.choice(unflagged, size, replace=False)] = True
    return drawn


def worded(scores: pd.DataFrame, flags: Bool) -> pd.Categorical[str]:
    """Why each flagged pair is to be checked; of a pair that is not flagged, no text."""
    chosen = scores[["units", "expected_units", "anomaly_probability", "level"]][flags]
    texts = reasons(*(chosen[name].to_numpy() for name in chosen.columns)).dictionary_encode()
    place = np.zeros(len(scores), dtype=np.int32)
    place[flags] = texts.indices.to_numpy() + 1
    words = pd.Index(["", *texts.dictionary.to_pylist()], dtype=object)
    return pd.Categorical.from_codes(place, words, validate=False)


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


def _ids(own: npt.NDArray[np.str_], codes: npt.NDArray[np.int32], all_ids: Ids) -> pd.Categorical[str]:
    place = np.searchsorted(np.asarray(all_ids, dtype=str), np.asarray(own, dtype=str)).astype(np.int32)
    return pd.Categorical.from_codes(place[codes], categories=pd.Index(all_ids), ordered=True)


def _priced(scores: pd.DataFrame, costs: Costs) -> tuple[Float, Bool]:
    """What flagging each pair saves, and where it pays. Some pairs at a time: of ten million, what is only
    passed on would be half a gigabyte of fresh memory, which takes longer to get than to fill."""
    probability = scores["anomaly_probability"].to_numpy()
    units, expected = scores["units"].to_numpy(), scores["expected_units"].to_numpy()
    saving, flags = np.empty(len(scores)), np.empty(len(scores), dtype=bool)
    for first in range(0, len(scores), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        f, of_part = 1.0 - probability[part], costs.of(part)
        saving[part] = expected_saving(f, of_part)
        flags[part] = flag_by_cost(f, of_part) & (units[part] < expected[part])
    saving.setflags(write=False)
    return saving, flags


def _capped(scores: pd.DataFrame, costs: Costs, cap: int) -> Bool:
    """The checks that save most, at most ``cap`` for each store."""
    flags = np.zeros(len(scores), dtype=bool)
    entry = np.flatnonzero((scores["units"] < scores["expected_units"]).to_numpy())
    store = scores["store_id"].cat.codes.to_numpy()[entry].astype(np.int64)
    f = 1.0 - scores["anomaly_probability"].to_numpy()[entry]
    flags[entry] = flag_with_cap(f, costs.of(entry), store, cap).flags
    return flags


def _places(scores: pd.DataFrame, saving: Float, flags: Bool) -> Int32:
    """1 for the best check of a store, 2 for the next; 0 for pairs that are not flagged."""
    entry = np.flatnonzero(flags)
    store = scores["store_id"].cat.codes.to_numpy()[entry].astype(np.int64)
    order = np.lexsort((entry, -saving[entry], store))  # equal savings: in the order of the SKUs
    count = np.bincount(store) if entry.size else np.zeros(0, np.int64)
    first = np.cumsum(count) - count
    places = np.zeros(flags.size, dtype=np.int32)
    places[entry[order]] = np.arange(entry.size) - first[store[order]] + 1
    return places
