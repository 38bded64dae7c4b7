"""Row blocks on the workers of a cluster.

Blocks and their predictions are results of tasks and stay where they were made; Dask knows how each was made
and makes it again, from the files of its partition on, when its worker is lost. The factors live with the
client. They travel as one task's result, which workers hand on to each other; sums come back by a tree of
additions on the workers, in a fixed order, so that the result depends neither on timing nor on who does what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from ew_pipeline.cluster.connection import fingerprint, gathered, refuse_other_worker
from ew_pipeline.core.arrays import Int64
from ew_pipeline.method.large.row_blocks import Parts, array_bytes

if TYPE_CHECKING:
    from distributed import Client, Future

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class ClusterBlocks:
    """Implements ``algorithm.row_blocks.Blocks``; ``blocks`` are futures of ``RowBlock``."""

    client: Client
    blocks: tuple[Future, ...]
    shape: tuple[int, int]
    row_bounds: Int64
    n_observed: int
    traffic: Traffic = field(default_factory=lambda: Traffic())
    fingerprint: str = field(default_factory=fingerprint)  # of what every worker is to compute with

    def keep(self, step: Callable[..., object], parts: Sequence[Parts], *shared: object) -> Parts:
        together = self.client.submit(_hand_out, shared, key=_key("shared", step)) if shared else ()
        self.traffic.sent += array_bytes(shared)
        futures = []
        for own in zip(self.blocks, *parts, strict=True):
            self.traffic.sent += array_bytes(own[1:])
            futures.append(
                self.client.submit(_call, step, own, together, self.fingerprint, key=_key("block", step))
            )
        self.traffic.steps += 1
        return futures

    def total(self, step: Callable[..., Result], parts: Sequence[Parts], *shared: object) -> Result:
        level: Sequence[Any] = self.keep(step, parts, *shared)
        while len(level) > 1:
            pairs = [
                self.client.submit(add, a, b, key=_key("add", step))
                for a, b in zip(level[::2], level[1::2], strict=False)
            ]
            level = [*pairs, *level[len(pairs) * 2 :]]
        found: Result = gathered(self.client, level[0])
        self.traffic.received += array_bytes(found)
        return found


@dataclass
class Traffic:
    """Bytes between client and cluster, counted as they are handed over."""

    sent: int = 0
    received: int = 0
    steps: int = 0


def _call(
    step: Callable[..., object], own: Sequence[object], shared: Sequence[object], wanted: str
) -> object:
    refuse_other_worker(wanted)
    return step(*own, *shared)


def _hand_out(values: tuple[object, ...]) -> tuple[object, ...]:
    return values


def _key(what: str, step: Callable[..., object]) -> str:
    return f"{what}-{step.__name__}-{uuid4().hex}"
