"""What to check of a week by row blocks: every block decides of its own stores and writes their scores.

All pairs of a store are in one block, so that a limit of checks per store is a block's own business. What
comes back is the rows to check, and sums.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

from ew_pipeline.algorithm.costs import Costs
from ew_pipeline.algorithm.row_blocks import Blocks, Parts, Prediction, RowBlock
from ew_pipeline.algorithm.types import Bool, Int64
from ew_pipeline.monitor.checks.draw import DRAWN
from ew_pipeline.provenance import file_hash
from ew_pipeline.publish.scores import BLOCK_SCORES, write_scores
from ew_pipeline.settings import RunConfig
from ew_pipeline.week import Week
from ew_pipeline.weekly.decide import decided, score_frame
from ew_pipeline.weekly.totals import ScoreTotals

SEGMENT = "all"


@dataclass(frozen=True, eq=False)
class Decided:
    """Of some blocks, by the first row of each: totals, and the rows to check. ``files``: sha256 by name."""

    of_blocks: dict[int, ScoreTotals]
    to_check: dict[int, pd.DataFrame]
    seen_skus: Bool
    files: dict[str, str]

    def __add__(self, other: Decided) -> Decided:
        return Decided(
            self.of_blocks | other.of_blocks,
            self.to_check | other.to_check,
            self.seen_skus | other.seen_skus,
            self.files | other.files,
        )

    @property
    def totals(self) -> ScoreTotals:
        parts = [self.of_blocks[first] for first in sorted(self.of_blocks)]
        added = {one.name for one in fields(ScoreTotals)} - {"skus", "sample"}
        return ScoreTotals(
            **{name: sum(getattr(part, name) for part in parts) for name in added},
            skus=int(np.count_nonzero(self.seen_skus)),
            sample=pd.concat([part.sample for part in parts], ignore_index=True),
        )

    def scores(self) -> pd.DataFrame:
        """The rows to check, by store and SKU."""
        parts = [self.to_check[first] for first in sorted(self.to_check)]
        stores = pd.Index(sorted(store for part in parts for store in part["store_id"].cat.categories))
        whole = pd.concat(
            [part.assign(store_id=part["store_id"].cat.set_categories(stores)) for part in parts],
            ignore_index=True,
        )
        return whole.sort_values(["store_id", "sku_id"], kind="stable", ignore_index=True)


def pairs_without_sales(block: RowBlock) -> int:
    """On a worker: how many pairs of the block sold nothing."""
    return int(np.count_nonzero(block.sales.counts == 0))


def decide_by_blocks(
    blocks: Blocks, predictions: Parts, column_entries: Int64, week: Week, config: RunConfig, folder: Path
) -> Decided:
    """Decide, with all scores written into ``folder/scores``, a file for each block."""
    (folder / BLOCK_SCORES).mkdir(parents=True, exist_ok=True)
    found: Decided = blocks.total(
        decide_block, [predictions], column_entries, blocks.n_observed, week, config, str(folder)
    )
    return found


def decide_block(
    block: RowBlock,
    predicted: Prediction,
    column_entries: Int64,
    week_pairs: int,
    week: Week,
    config: RunConfig,
    folder: str,
) -> Decided:
    """On a worker: decide and write the block's pairs. ``column_entries``: of each SKU in the whole week,
    which has ``week_pairs``."""
    assert predicted.healthy is not None
    sales = block.sales
    own, least = np.diff(sales.indptr), config.min_pair_entries
    scored = (own[sales.rows] >= least) & (column_entries[sales.cols] >= least)
    costs = Costs(config.default_cost_false_alarm, config.default_cost_missed)
    posterior = 1.0 - predicted.healthy.astype(np.float64)
    frame = score_frame(
        sales,
        scored,
        costs,
        expected=predicted.means.astype(np.float64),
        level=None,
        posterior=posterior,
        probability=posterior,
        ids=(sales.store_ids.tolist(), sales.sku_ids.tolist()),
        segment=(SEGMENT, [SEGMENT]),
    )
    scores = decided(frame, costs, week, config, part=(block.first_row,))
    name = f"{BLOCK_SCORES}/rows-{block.first_row:09d}.parquet"
    whole = Path(folder) / name
    part = whole.with_suffix(".part")
    write_scores(scores, part)
    part.replace(whole)  # a block that is made twice writes the same file twice, and never half of it
    seen = np.zeros(sales.shape[1], dtype=bool)
    seen[scores["sku_id"].cat.codes.to_numpy()] = True
    wanted = scores["flagged"] | scores[DRAWN] if DRAWN in scores else scores["flagged"]
    return Decided(
        of_blocks={block.first_row: ScoreTotals.of(scores, week_pairs)},
        to_check={block.first_row: scores[wanted]},
        seen_skus=seen,
        files={name: file_hash(whole)},
    )
