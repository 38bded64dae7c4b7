"""Waiting for results of a cluster that may be lost meanwhile.

Dask itself waits without end: when all workers are gone, for new ones. Meanwhile the week is locked, and who
started it is told nothing. So whoever waits looks up now and then whether anybody is at work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import wait as wait_here
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ew_pipeline.cluster.connection import some_workers

if TYPE_CHECKING:
    from distributed import Client, Future

LOOK_SECONDS = 5.0  # between two looks; also how soon a worker that joins is given a week


def gathered(client: Client, futures: Any) -> Any:
    """``client.gather``, as long as there are workers.

    Results that are large may take longer to come than from look to look, so the one request goes on while we
    look. (A result that was ready and is lost with its worker is made again, within the same request.)
    """
    loop = client.loop.asyncio_loop
    request = asyncio.run_coroutine_threadsafe(client.gather(futures, asynchronous=True), loop)
    try:
        while not wait_here([request], timeout=LOOK_SECONDS).done:
            some_workers(client)
        return request.result()
    finally:
        request.cancel()


def ended(client: Client, futures: Sequence[Future]) -> set[Future]:
    """Those that have ended, as soon as there is one; none, after a while."""
    from distributed import wait

    try:
        found: set[Future] = wait(list(futures), timeout=LOOK_SECONDS, return_when="FIRST_COMPLETED").done
    except TimeoutError:
        some_workers(client)
        return set()
    return found


def forgotten(client: Client, futures: Iterable[Future]) -> bool:
    """Have the cluster drop the work; False where the scheduler is gone, and nobody is left to be told."""
    from distributed.client import ClosedClientError

    if client.status != "closed":
        with suppress(OSError, ClosedClientError):
            client.cancel(list(futures))
            return True
    return False
