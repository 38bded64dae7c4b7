"""All that is known of one pair in one week, flagged or not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ew_pipeline.audit.pair_state import HistoryWeek, PairState, as_sentence, pair_state
from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import EwError, UsageError
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.decide.flags import DRAWN
from ew_pipeline.decide.reasons import in_words, percent, short
from ew_pipeline.expect.fit import folder_name
from ew_pipeline.infer.pricing import Chance, chance
from ew_pipeline.intake.snapshot import is_kept, load_snapshot
from ew_pipeline.ledger import Ledger, Publication, Run
from ew_pipeline.ledger.writing import SCORES
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.outputs.scores import BLOCK_SCORES
from ew_pipeline.tracking.model import load_model

MOST_NEIGHBOURS = 5


@dataclass(frozen=True)
class Neighbour:
    """Another store with the SKU, or another SKU of the store. ``similarity``: 1 is the same profile."""

    name: str
    similarity: float
    units: int
    expected_units: float


@dataclass(frozen=True)
class Resemblance:
    """``sku_elsewhere`` and ``store_otherwise``: units over expected units, of all the others together."""

    stores: tuple[Neighbour, ...]
    skus: tuple[Neighbour, ...]
    sku_elsewhere: float | None
    store_otherwise: float | None
    rank: int


@dataclass(frozen=True)
class Score:
    """What the run said of the pair; ``level`` is None without history.

    ``posterior`` is that of the week's fit, priced or not; None where it is not stored any more.
    """

    segment: str
    units: int
    expected_units: float
    level: float | None
    anomaly_probability: float
    cost_false_alarm: float
    cost_missed: float
    threshold: float
    expected_saving: float
    store_rank: int
    reasons: str
    posterior: float | None = None
    drawn: bool = False


@dataclass(frozen=True)
class Explanation:
    """``status``: flagged, not_flagged, not_scored, or a state of ``PairState``. ``verdict``: it in words.

    ``steps`` are the sentences from the sales to the decision, ``gaps`` what is not stored any more.
    """

    store: str
    sku: str
    week: str
    status: str
    verdict: str
    steps: tuple[str, ...]
    score: Score | None
    history: tuple[HistoryWeek, ...]
    resemblance: Resemblance | None
    flagged_in: tuple[str, ...]  # other weeks
    checks: tuple[str, ...]
    provenance: dict[str, Any]
    gaps: tuple[str, ...]


def explain_pair(
    ledger: Ledger, settings: Settings, store: str, sku: str, week: Week, run_id: str | None = None
) -> Explanation:
    """Explain a pair by what is live for the week, or by another run."""
    run, publication = _which(ledger, week, run_id)
    config = RunConfig.model_validate(run.config)
    zero_rule = str((run.coverage or {}).get("zero_rule", "explicit"))
    gaps: list[str] = []
    score, flagged = _score(ledger, run, publication, store, sku, gaps)
    if is_kept(str(run.data_hash)):
        snapshot = load_snapshot(str(run.data_hash), settings)
        state = pair_state(snapshot.folder, week, config, zero_rule, store, sku)
        alike = _resemblance(ledger, run, store, sku, score, gaps)
    else:
        state, alike = _state_by_blocks(week, store, sku, score), None
        gaps.append("the week was computed by row blocks: other weeks' sales and a model are not kept")
    if score is not None:
        status = "flagged" if flagged else "not_flagged"
        verdict, steps = _decision(score, flagged, config, run)
    elif state.state == "observed":
        known = all_scores(run) is not None
        status = "not_scored" if known else "not_flagged"
        verdict, steps = (_too_little(store, sku, config) if known else "It was not flagged"), ()
    else:
        status, verdict, steps = state.state, as_sentence(state, run.coverage), ()
    return Explanation(
        store=store,
        sku=sku,
        week=str(week),
        status=status,
        verdict=verdict[0].upper() + verdict[1:] + ".",
        steps=(*steps, *_why(alike, store, sku)),
        score=score,
        history=state.history,
        resemblance=alike,
        flagged_in=_flagged_in(ledger, store, sku, week),
        checks=_checks(ledger, store, sku, week),
        provenance=_provenance(ledger, run, publication, score),
        gaps=tuple(gaps),
    )


def _which(ledger: Ledger, week: Week, run_id: str | None) -> tuple[Run, Publication | None]:
    """The run to explain, and the publication that shows it."""
    live = ledger.current(week)
    if run_id is None and live is not None:
        return ledger.run(live.run_id), live
    if run_id is None:
        computed = [run for run in ledger.runs(week) if run.pairs_scored is not None]
        if not computed:
            raise UsageError(f"{week} was not run.", f"run it: ew run --week {week} --sales FILE")
        return computed[0], None
    run = ledger.run(run_id)
    if run.pairs_scored is None:
        raise UsageError(f"run {run_id} has no result ({run.status}).")
    if run.week != week:
        raise UsageError(f"run {run_id} is of {run.week}, not of {week}.")
    own = [one for one in ledger.publications(week) if one.run_id == run_id]
    return run, own[-1] if own else None


def _score(
    ledger: Ledger, run: Run, publication: Publication | None, store: str, sku: str, gaps: list[str]
) -> tuple[Score | None, bool]:
    place = all_scores(run)
    if publication is not None:
        flags = ledger.flags(publication.id, store)
        flags = flags[flags["sku_id"] == sku]
        if len(flags):
            return _score_of(flags), True
    if place is None:
        gaps.append(
            "the scores of pairs that were not flagged are not stored any more; "
            f"ew audit replay {run.run_id} makes them again"
        )
        return None, False
    frame = pd.read_parquet(place, filters=[("store_id", "==", store), ("sku_id", "==", sku)])
    return (None, False) if frame.empty else (_score_of(frame), bool(frame["flagged"].iloc[0]))


def all_scores(run: Run) -> Path | None:
    """The file with the scores of all pairs, or the folder of such files; None when they were removed."""
    file, folder = run.folder / SCORES, run.folder / BLOCK_SCORES
    return file if file.is_file() else folder if folder.is_dir() else None


def _state_by_blocks(week: Week, store: str, sku: str, score: Score | None) -> PairState:
    """By row blocks, of a pair that is scored its own row is known, and of another one nothing."""
    if score is not None:
        return PairState("observed", "", score.units, (HistoryWeek(str(week), score.units, ""),))
    words = f"SKU {sku} in store {store} is not among the scored pairs of {week}: no row, or too little data"
    return PairState("not_scored", words, None, ())


def _score_of(frame: pd.DataFrame) -> Score:
    row = {str(name): value for name, value in frame.iloc[0].items()}
    level = float(row["level"]) if row["level"] is not None else math.nan
    return Score(
        segment=str(row["segment"]),
        units=int(row["units"]),
        level=None if math.isnan(level) else level,
        store_rank=int(row["store_rank"]),
        reasons=in_words(str(row["reasons"])),
        posterior=float(row["posterior"]) if "posterior" in row else None,
        drawn=bool(row.get(DRAWN, False)),
        **{
            name: float(row[name])
            for name in (
                "expected_units",
                "anomaly_probability",
                "cost_false_alarm",
                "cost_missed",
                "threshold",
                "expected_saving",
            )
        },
    )


def _resemblance(
    ledger: Ledger, run: Run, store: str, sku: str, score: Score | None, gaps: list[str]
) -> Resemblance | None:
    segments = ledger.segments(run.run_id)
    names = [str(name) for name in segments.loc[segments["rank"].notna(), "segment"]]
    for name in names if score is None else [score.segment]:
        folder: Path = run.folder / "model" / folder_name(name)
        if not (folder / "arrays.npz").is_file():
            gaps.append("the model is not stored any more, so what resembles the pair is not shown")
            return None
        try:
            found = resemblance(load_model(folder).fit, store, sku)
        except EwError as error:
            gaps.append(f"the model cannot be read: {error.message}")
            return None
        if found is not None:
            return found
    return None


def _decision(score: Score, flagged: bool, config: RunConfig, run: Run) -> tuple[str, tuple[str, ...]]:
    healthy = 1.0 - score.anomaly_probability
    worth = healthy <= score.threshold
    steps = [
        f"It sold {score.units}; a healthy pair would have sold {short(score.expected_units)}"
        + ("" if score.level is None else f", and its own level of the weeks before is {short(score.level)}"),
        f"{run_chance(run).name} = {percent(score.anomaly_probability)}, {run_chance(run).meaning}"
        f"{_learnt(score, run)}",
        f"Checking a healthy shelf costs {score.cost_false_alarm:g}, leaving a wrong record alone "
        f"{score.cost_missed:g}",
        f"It is worth a check when P(healthy) is at most {score.threshold:.3g}: {healthy:.3g} "
        + ("is" if worth else "is not")
        + f" (expected saving {score.expected_saving:.2f})",
    ]
    if flagged:
        steps.append(f"It is number {score.store_rank} on the list of its store: {score.reasons}")
        return "flagged: worth a walk to the shelf", tuple(steps)
    if score.drawn:
        return "not flagged, but drawn at random to be checked: that tells what flags miss", tuple(steps)
    if not worth:
        return "not flagged: a check would cost more than it is expected to save", tuple(steps)
    if score.units >= score.expected_units:
        return "not flagged: it sold at least what was expected, so no shelf is empty there", tuple(steps)
    limit = config.max_checks_per_store
    return f"not flagged: worth a check, but the store's {limit} checks save more elsewhere", tuple(steps)


def run_chance(run: Run) -> Chance:
    """What the run's priced probability is the probability of."""
    pricing = run.pricing or {}
    return chance(pricing.get("form", "posterior"), (pricing.get("calibration") or {}).get("labels", ""))


def _learnt(score: Score, run: Run) -> str:
    """What the probability is, where it is not the fit's own."""
    pricing = run.pricing or {}
    if pricing.get("form", "posterior") == "posterior":
        return ""
    own = "" if score.posterior is None else f" (the week's fit alone says {percent(score.posterior)})"
    return f"{own}: {pricing['words']}"


def _too_little(store: str, sku: str, config: RunConfig) -> str:
    least = config.min_pair_entries
    return (
        f"not scored: too little data; store {store} or SKU {sku} has fewer than {least} pairs in the week, "
        f"and the pair fewer than {least} weeks of its own"
    )


def _why(alike: Resemblance | None, store: str, sku: str) -> list[str]:
    if alike is None:
        return []
    found = []
    if alike.sku_elsewhere is not None:
        found.append(
            f"SKU {sku} sold {percent(alike.sku_elsewhere)} of what was expected in the other stores"
        )
    if alike.store_otherwise is not None:
        found.append(
            f"Store {store} sold {percent(alike.store_otherwise)} of what was expected of its other SKUs"
        )
    return found


def _flagged_in(ledger: Ledger, store: str, sku: str, week: Week) -> tuple[str, ...]:
    return tuple(str(other) for other in ledger.weeks_flagged(store, sku) if other != week)


def _checks(ledger: Ledger, store: str, sku: str, week: Week) -> tuple[str, ...]:
    rows = ledger.table("checks", store_id=store, sku_id=sku)
    return tuple(
        f"{row['week']}: {row['outcome']} ({row['source']}), recorded {str(row['recorded_at'])[:10]} "
        f"by {row['recorded_by']}"
        for row in rows.to_dict("records")
    )


def _provenance(
    ledger: Ledger, run: Run, publication: Publication | None, score: Score | None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "run": run.run_id,
        "status": run.status,
        "publication": None if publication is None else f"{publication.id} (version {publication.version})",
        "published": None
        if publication is None
        else f"{publication.published_at:%Y-%m-%d %H:%M UTC} by {publication.published_by}",
        "override": None
        if publication is None or publication.override is None
        else f"{publication.override.who}: {publication.override.why}",
        "data": run.data_hash,
        "configuration": run.config_hash,
        "code": run.code_version,
        "seed": run.seed,
        "MLflow run": run.mlflow_run_id,
        "calibration": ((run.pricing or {}).get("calibration") or {}).get("version"),
    }
    segments = ledger.segments(run.run_id).set_index("segment")
    if score is not None and score.segment in segments.index:
        fit = segments.loc[score.segment]
        found |= {
            "model": f"{fit['mode']}, rank {fit['rank']}, {fit['noise']}, {fit['anomaly']} anomalies",
            "theta": f"alpha {fit['alpha']:.3g}, p_A {fit['anomaly_rate']:.3g} (segment {score.segment})",
        }
    return {name: value for name, value in found.items() if value is not None}


def resemblance(fit: DetectorFit, store: str, sku: str) -> Resemblance | None:
    """The stores and SKUs that sell alike, and what they did; None when one was not in the fitted matrix.

    Two stores are alike when their rows of M = U V^T, each about its own mean, point the same way. With
    G = W^T W and W = V about its mean, their cosine is u_i G u_k / sqrt(u_i G u_i  u_k G u_k). That of the
    factors themselves would change with the way M is split in two.
    """
    sales = fit.sales
    row, column = np.flatnonzero(sales.store_ids == store), np.flatnonzero(sales.sku_ids == sku)
    if row.size == 0 or column.size == 0:
        return None
    i, j = int(row[0]), int(column[0])
    with_sku = np.flatnonzero((sales.cols == j) & (sales.rows != i))
    in_store = np.flatnonzero((sales.rows == i) & (sales.cols != j))
    left, right = fit.factors_.left, fit.factors_.right
    by_store = _cosines(left, _gram(right), i, sales.rows[with_sku])
    by_sku = _cosines(right, _gram(left), j, sales.cols[in_store])
    return Resemblance(
        stores=_nearest(fit, with_sku, by_store, sales.store_ids[sales.rows[with_sku]]),
        skus=_nearest(fit, in_store, by_sku, sales.sku_ids[sales.cols[in_store]]),
        sku_elsewhere=_share(fit, with_sku),
        store_otherwise=_share(fit, in_store),
        rank=fit.factors_.rank,
    )


def _gram(factor: Float) -> Float:
    centred = factor - factor.mean(axis=0)
    return np.asarray(centred.T @ centred)


def _cosines(factor: Float, gram: Float, own: int, others: NDArray[np.int32]) -> Float:
    mine = gram @ factor[own]
    lengths = np.sqrt(np.maximum(np.einsum("kr,rs,ks->k", factor[others], gram, factor[others]), 0.0))
    scale = lengths * np.sqrt(max(float(factor[own] @ mine), 0.0))
    product = factor[others] @ mine
    cosines = np.divide(product, scale, out=np.zeros(len(others)), where=scale > 0)
    return np.asarray(np.clip(cosines, -1.0, 1.0))


def _nearest(
    fit: DetectorFit, entries: NDArray[np.intp], cosines: Float, names: NDArray[np.str_]
) -> tuple[Neighbour, ...]:
    order = np.lexsort((names, -cosines))[:MOST_NEIGHBOURS]
    return tuple(
        Neighbour(
            name=str(names[place]),
            similarity=float(cosines[place]),
            units=int(fit.sales.counts[entries[place]]),
            expected_units=float(fit.expected_sales_[entries[place]]),
        )
        for place in order
    )


def _share(fit: DetectorFit, entries: NDArray[np.intp]) -> float | None:
    expected = float(fit.expected_sales_[entries].sum())
    return float(fit.sales.counts[entries].sum()) / expected if expected > 0 else None
