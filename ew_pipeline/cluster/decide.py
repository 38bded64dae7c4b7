"""What to check of a week by row blocks: every block decides of its own stores and writes their scores.

All pairs of a store are in one block, so that a limit of checks per store is a block's own business. Sums
come back at once; the rows to check stay with the workers until the sums have been looked at, as a theta that
is wrong may flag a third of a week that no machine has room for.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from ew_pipeline.core.arrays import Bool, Int64
from ew_pipeline.core.provenance import file_hash
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.decide.flags import DRAWN, ScoreTotals, decided, score_frame
from ew_pipeline.method.costs import Costs
from ew_pipeline.method.large.row_blocks import (
    Blocks,
    Parts,
    Prediction,
    RowBlock,
    array_bytes,
    rows_between,
)
from ew_pipeline.outputs.scores import BLOCK_SCORES, scores_in_parts

SEGMENT = "all"
AT_ONCE = 1 << 19  # pairs of a block: of each there are 150 bytes while it is decided and written


@dataclass(frozen=True, eq=False)
class Decided:
    """Of some blocks: totals by the first row of what they are of, which SKUs are scored, how many rows are
    to be checked, and the sha256 of the files by name."""

    of_rows: dict[int, ScoreTotals]
    seen_skus: Bool
    to_check: int
    files: dict[str, str]

    def __add__(self, other: Decided) -> Decided:
        return Decided(
            self.of_rows | other.of_rows,
            self.seen_skus | other.seen_skus,
            self.to_check + other.to_check,
            self.files | other.files,
        )

    @cached_property
    def totals(self) -> ScoreTotals:
        parts = [self.of_rows[first] for first in sorted(self.of_rows)]
        added = {one.name for one in fields(ScoreTotals)} - {"skus", "sample"}
        return ScoreTotals(
            **{name: sum(getattr(part, name) for part in parts) for name in added},
            skus=int(np.count_nonzero(self.seen_skus)),
            sample=pd.concat([part.sample for part in parts], ignore_index=True),
        )


@dataclass(frozen=True, eq=False)
class ToCheck:
    """The rows to check, by the first row of the block that they are of; at most so many, of those that save
    most (of equal ones the first)."""

    of_rows: Mapping[int, pd.DataFrame]
    most: int | None = None

    def __add__(self, other: ToCheck) -> ToCheck:
        return ToCheck({**self.of_rows, **other.of_rows}, self.most).best()

    def best(self) -> ToCheck:
        if self.most is None or len(self) <= self.most:
            return self
        parts = [(first, self.of_rows[first]) for first in sorted(self.of_rows)]
        saving = np.concatenate(
            [np.where(part["flagged"], part["expected_saving"], -np.inf) for _, part in parts]
        )
        kept = np.zeros(saving.size, dtype=bool)
        kept[np.argsort(-saving, kind="stable")[: self.most]] = True
        ends = np.cumsum([len(part) for _, part in parts])
        masks = np.split(kept, ends[:-1])
        return ToCheck(
            {first: part[mask] for (first, part), mask in zip(parts, masks, strict=True)}, self.most
        )

    def __len__(self) -> int:
        return sum(len(part) for part in self.of_rows.values())

    def scores(self) -> pd.DataFrame:
        """By store and SKU."""
        parts = [self.of_rows[first] for first in sorted(self.of_rows)]
        stores = pd.Index(sorted(store for part in parts for store in part["store_id"].cat.categories))
        whole = pd.concat(
            [part.assign(store_id=part["store_id"].cat.set_categories(stores)) for part in parts],
            ignore_index=True,
        )
        return whole.sort_values(["store_id", "sku_id"], kind="stable", ignore_index=True)


@dataclass(frozen=True, eq=False)
class BlockDecision:
    """What is decided of a block, which stays with it."""

    decided: Decided
    to_check: ToCheck

    def __sizeof__(self) -> int:
        """For whoever decides what to move where, and what not to keep in memory."""
        frames = self.to_check.of_rows.values()
        return array_bytes(self.decided) + sum(int(frame.memory_usage().sum()) for frame in frames)


def pairs_without_sales(block: RowBlock) -> int:
    """On a worker: how many pairs of the block sold nothing."""
    return int(np.count_nonzero(block.sales.counts == 0))


def decide_by_blocks(
    blocks: Blocks, predictions: Parts, column_entries: Int64, week: Week, config: RunConfig, folder: Path
) -> tuple[Decided, Parts]:
    """Decide, with all scores written into ``folder/scores``, a file for each block. What is to be checked
    stays with the blocks (``rows_to_check``)."""
    scores = folder / BLOCK_SCORES
    scores.mkdir(parents=True, exist_ok=True)
    parts = blocks.keep(
        decide_block, [predictions], column_entries, blocks.n_observed, week, config, str(folder)
    )
    found: Decided = blocks.total(totals_of, [parts])
    for unfinished in scores.glob(".*.part"):  # of workers that were lost
        unfinished.unlink(missing_ok=True)
    return found, parts


def rows_to_check(blocks: Blocks, decisions: Parts, most: int | None) -> pd.DataFrame:
    """Bring them here; ``most``: only so many, of those that save most."""
    found: ToCheck = blocks.total(rows_of, [decisions], most)
    return found.scores()


def totals_of(block: RowBlock, decision: BlockDecision) -> Decided:
    return decision.decided


def rows_of(block: RowBlock, decision: BlockDecision, most: int | None) -> ToCheck:
    return ToCheck(decision.to_check.of_rows, most).best()


def decide_block(
    block: RowBlock,
    predicted: Prediction,
    column_entries: Int64,
    week_pairs: int,
    week: Week,
    config: RunConfig,
    folder: str,
) -> BlockDecision:
    """On a worker: decide and write the block's pairs. ``column_entries``: of each SKU in the whole week,
    which has ``week_pairs``."""
    name = f"{BLOCK_SCORES}/rows-{block.first_row:09d}.parquet"
    whole = Path(folder) / name
    # A block that is made twice writes the same file twice, and never half of it; a worker that was given up
    # may still be at it, and whoever reads the folder passes over names that begin with a dot.
    part = whole.with_name(f".{whole.stem}-{secrets.token_hex(4)}.part")
    totals: dict[int, ScoreTotals] = {}
    to_check: list[pd.DataFrame] = []
    ids = pd.Index(block.sales.store_ids.tolist()), pd.Index(block.sales.sku_ids.tolist())
    seen = np.zeros(block.sales.shape[1], dtype=bool)
    with scores_in_parts(part) as file:
        for first, end in pairwise(_stores_together(block.sales.indptr)):
            scores = _decided_rows(block, predicted, (first, end), column_entries, week, config, ids)
            file.add(scores)
            totals[block.first_row + first] = ScoreTotals.of(scores, week_pairs)
            seen[scores["sku_id"].cat.codes.to_numpy()] = True
            wanted = scores["flagged"] | scores[DRAWN] if DRAWN in scores else scores["flagged"]
            to_check.append(scores[wanted])
    part.replace(whole)
    rows = _below_each_other(to_check)
    return BlockDecision(
        Decided(totals, seen, len(rows), {name: file_hash(whole)}), ToCheck({block.first_row: rows})
    )


def _decided_rows(
    block: RowBlock,
    predicted: Prediction,
    rows: tuple[int, int],
    column_entries: Int64,
    week: Week,
    config: RunConfig,
    ids: tuple[pd.Index, pd.Index],
) -> pd.DataFrame:
    """The scores of some stores of the block."""
    assert predicted.healthy is not None
    first, end = rows
    entries = slice(int(block.sales.indptr[first]), int(block.sales.indptr[end]))
    sales = rows_between(block.sales, first, end)
    own, least = np.diff(sales.indptr), config.min_pair_entries
    scored = (own[sales.rows] >= least) & (column_entries[sales.cols] >= least)
    costs = Costs(config.default_cost_false_alarm, config.default_cost_missed)
    posterior = 1.0 - predicted.healthy[entries].astype(np.float64)
    frame = score_frame(
        sales,
        scored,
        costs,
        expected=predicted.means[entries].astype(np.float64),
        level=None,
        posterior=posterior,
        probability=posterior,
        ids=ids,
        segment=(SEGMENT, [SEGMENT]),
    )
    return decided(frame, costs, week, config, part=(block.first_row + first,))


def _below_each_other(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """With one list of all texts; the ids have theirs in common."""
    if len(parts) == 1:
        return parts[0]
    words = union_categoricals([part["reasons"] for part in parts])
    return pd.concat(parts, ignore_index=True).assign(reasons=words)


def _stores_together(indptr: Int64) -> list[int]:
    """Where to cut the rows, so that about ``AT_ONCE`` entries are between; never within a store."""
    cuts = np.searchsorted(indptr, np.arange(0, indptr[-1], AT_ONCE))
    return [int(cut) for cut in np.unique(np.append(cuts, len(indptr) - 1))]
