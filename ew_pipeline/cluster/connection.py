"""An existing Dask cluster: the connection, whether its workers can stand in for this machine, and waiting.

Dask waits without end for new workers when all are gone. Meanwhile the week is locked, and who started it is
told nothing. So whoever waits looks now and then whether anybody is at work.
"""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait as wait_here
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ew_pipeline.core.errors import EwError, UsageError, name_some
from ew_pipeline.core.provenance import canonical_hash, code_version, environment
from ew_pipeline.core.settings import Settings

if TYPE_CHECKING:
    from distributed import Client, Future, KilledWorker, Worker


CONNECT_SECONDS = 15
# Without any worker before the work is given up. A nanny starts a lost worker again within seconds, and a
# cluster manager within a minute if it has a machine; meanwhile nobody else can have the week.
WORKERS_SECONDS = 60.0
ANSWER_SECONDS = 60.0  # for the scheduler to say who is there: when it is busy, not when it hangs
ASKED_AGAIN_SECONDS = 15.0  # when something failed: with all the rest, the words come within two minutes
LOOK_SECONDS = 5.0  # between two looks; also how soon a worker that joins is given a week
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ClusterError(EwError, RuntimeError):
    """The cluster cannot do the work: nobody answers, or its workers do not see what they need."""


@dataclass(frozen=True)
class Sight:
    """What a worker sees of the things it has to share with us."""

    machine: str
    code_version: str
    environment: Mapping[str, str]
    reads_the_mark: bool
    writes_home: bool
    missing: tuple[str, ...]  # sources it cannot read


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """A client of the scheduler at ``address``, once it has a worker."""
    need_dask()
    from dask import config as dask_config
    from distributed import Client

    try:
        _refuse_address(address)
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address}: {error}.",
            "start one (dask scheduler), or correct --dask or EW_DASK_ADDRESS.",
        ) from error
    # Factors and inputs travel with their tasks, so that these can be done again elsewhere; Dask would have
    # them scattered, and what is scattered is gone with the worker that has it.
    quiet = dask_config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"})
    try:
        with quiet, losses_said(client, address):
            some_workers(client)
            with client.as_current():
                yield client
    finally:
        client.close()


def need_dask() -> None:
    """Say in words that the extra is missing, where it is."""
    if find_spec("distributed") is None:
        raise UsageError(
            "a Dask cluster is asked for, and Dask is not installed.",
            "pip install 'ew-pipeline[dask]', or run without --dask and EW_DASK_ADDRESS.",
        )


def _refuse_address(address: str) -> None:
    """Before a client is made of it: of one that fails otherwise than by not connecting, threads stay."""
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import get_backend
    from distributed.security import Security

    scheme, place = parse_address(address)
    get_backend(scheme)
    if scheme in ("tcp", "tls"):
        parse_host_port(place)
    if scheme in ("tls", "wss") and Security().get_connection_args("client")["ssl_context"] is None:
        raise ClusterError(
            f"the scheduler at {address} wants an encrypted connection, and Dask has no certificates here.",
            "name them to Dask (DASK_DISTRIBUTED__COMM__TLS__CA_FILE, …__CLIENT__CERT and …__CLIENT__KEY).",
        )


def some_workers(client: Client, refusing: Mapping[str, str] | None = None) -> list[str]:
    """The addresses of the workers there are now, in order; waits a while for the first one.

    ``refusing``: workers that would not do the work, and why; they are not waited for, but are among those
    returned.
    """
    refusing = refusing or {}
    until = time.monotonic() + WORKERS_SECONDS
    while not set(found := _workers(client)).difference(refusing):
        if time.monotonic() > until:
            if found:
                raise ClusterError(
                    f"the scheduler at {client.scheduler.address} has had no workers for "
                    f"{WORKERS_SECONDS:.0f} s but {len(found)} that refuse the work: {refusing[found[0]]}",
                    "install the same version and the same lock on client and workers, restart the workers, "
                    "then type the same command: weeks that are done are not done again.",
                )
            raise ClusterError(
                f"the scheduler at {client.scheduler.address} has had no workers for "
                f"{WORKERS_SECONDS:.0f} s.",
                "start some (dask worker ADDRESS), then type the same command: "
                "weeks that are done are not done again.",
            )
        time.sleep(0.1)
    return found


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


@contextmanager
def losses_said(client: Client, address: str, left: Callable[[], str] = str) -> Iterator[None]:
    """What the block raises when the cluster is lost, in words; ``left``: what there is still to do, also in
    words. An error of the work itself is passed on as it is."""
    from distributed import KilledWorker
    from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError

    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"the task {error.task} was not done: {end_of_worker(error)}.",
            "give the workers more memory, or cut the input into smaller files, and type the same command.",
        ) from error
    except (FutureCancelledError, FuturesCancelledError, ClosedClientError) as error:
        raise _lost(address, left()) from error
    except OSError as error:  # of the connection, or of a file
        if _answers(client):
            raise
        raise _lost(address, left()) from error


def _lost(address: str, left: str) -> ClusterError:
    return ClusterError(
        f"the scheduler at {address} is gone{left}, and has forgotten the work if it is back.",
        "start it and its workers again and type the same command: weeks that are done are not done again.",
    )


def _answers(client: Client) -> bool:
    try:
        _workers(client, ASKED_AGAIN_SECONDS)
    except OSError:
        return False
    return True


def _workers(client: Client, seconds: float | None = None) -> list[str]:
    if client.status == "closed":  # it closes itself when it cannot connect again
        raise OSError("the connection to the scheduler is closed")
    return sorted(client.nthreads(callback_timeout=ANSWER_SECONDS if seconds is None else seconds))


def check_workers(
    client: Client, settings: Settings, sources: Mapping[str, str], *, publishing: bool = True
) -> None:
    """Refuse a cluster whose workers would not make the same result in the same place.

    They need the home (a file written here must be seen there, and the other way round), the files of the
    ``sources`` (table -> file or URL), our code and our libraries. Where they publish weeks by themselves
    (``publishing``), they also need ledger and MLflow, and a SQLite file cannot be shared between machines:
    its locks do not reach that far.
    """
    mark = settings.root / f".cluster-{secrets.token_hex(8)}"
    files = {name: source for name, source in sources.items() if "://" not in source}
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(mark.name, encoding="utf-8")
    try:
        seen: dict[str, Sight | Exception] = client.run(look, str(mark), files, on_error="return")
        wrote = {worker for worker in seen if _answer(mark, worker).exists()}
    finally:
        for file in mark.parent.glob(f"{mark.name}*"):
            with suppress(OSError):
                file.unlink()
    sights = {worker: sight for worker, sight in seen.items() if isinstance(sight, Sight)}
    if not sights and not seen:
        raise ClusterError("no worker could be asked: none is there.", "start some (dask worker ADDRESS).")
    for worker, sight in seen.items():
        if not isinstance(sight, Sight):
            raise ClusterError(
                f"the worker {worker} could not be asked: {type(sight).__name__}: {sight}.",
                "install the same version and the same lock on client and workers, and restart the workers.",
            )
    _refuse(
        [worker for worker, sight in sights.items() if not (sight.reads_the_mark and sight.writes_home)]
        or [worker for worker in sights if worker not in wrote],
        f"do not share the home {settings.root}",
        "put EW_HOME on storage that every worker mounts at the same path, writable.",
    )
    for name, path in files.items():
        _refuse(
            [worker for worker, sight in sights.items() if name in sight.missing],
            f"cannot read the {name} {path}",
            "put it where every worker sees it at the same path, or on SQL.",
        )
    _refuse_other_code(sights)
    if publishing and {sight.machine for sight in sights.values()} != {machine()}:
        for what, url, variable in (
            ("ledger", settings.ledger_url, "EW_DATABASE_URL=postgresql+psycopg://…"),
            ("MLflow tracking", settings.tracking_uri, "MLFLOW_TRACKING_URI=http://…"),
        ):
            if url.startswith("sqlite"):
                raise ClusterError(
                    f"the workers are on other machines and the {what} is a SQLite file, which machines "
                    "cannot share safely.",
                    f"use a server for it: {variable}",
                )


def look(mark: str, sources: Mapping[str, str], dask_worker: Worker) -> Sight:
    """On a worker, which Dask passes along: what it sees. It leaves an answer beside the mark."""
    path = Path(mark)
    try:
        reads = path.read_text(encoding="utf-8") == path.name
    except OSError:
        reads = False
    writes = reads
    try:
        if reads:  # otherwise this is another folder, and not ours to write to
            _answer(path, dask_worker.address).touch()
    except OSError:
        writes = False
    return Sight(
        machine=machine(),
        code_version=code_version(),
        environment=libraries(),
        reads_the_mark=reads,
        writes_home=writes,
        missing=tuple(name for name, source in sources.items() if not os.access(source, os.R_OK)),
    )


def end_of_worker(error: KilledWorker) -> str:
    """In words, that a task took too many workers with it."""
    lost = error.allowed_failures + 1
    return (
        f"{lost} worker{'s were' if lost > 1 else ' was'} lost while at it, the last one at "
        f"{error.last_worker.address}; its log says why (memory?)"
    )


def machine() -> str:
    """The same for all processes under one kernel, containers included."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def libraries() -> dict[str, str]:
    """What a result depends on, and Dask, whose parts understand each other within a version."""
    found = environment()
    return {**found, **{name: version(name) for name in ("dask", "distributed")}}


def fingerprint() -> str:
    """Of our code and libraries: it goes with tasks."""
    return canonical_hash({"ew-pipeline": code_version(), **libraries()})


def refuse_other_worker(wanted: str) -> None:
    """On a worker, at the beginning of a task: one that joined later has not been looked at. ``wanted``: the
    client's ``fingerprint``."""
    from distributed import get_worker

    if _own_fingerprint() != wanted:
        ours = ", ".join(f"{name} {value}" for name, value in libraries().items())
        raise ClusterError(
            f"the worker {get_worker().address} has joined since, and would not compute what the client "
            f"does: ew-pipeline {code_version()}, {ours}.",
            "install the same version and the same lock on client and workers, restart the workers, and type "
            "the same command.",
        )


@cache
def _own_fingerprint() -> str:
    return fingerprint()


def _refuse_other_code(sights: Mapping[str, Sight]) -> None:
    ours = {"ew-pipeline": code_version(), **libraries()}
    for worker, sight in sights.items():
        theirs = {"ew-pipeline": sight.code_version, **sight.environment}
        other = [name for name in ours if theirs.get(name) != ours[name]]
        if other:
            named = ", ".join(f"{name} {theirs.get(name, 'none')} instead of {ours[name]}" for name in other)
            raise ClusterError(
                f"the worker {worker} would not compute what this machine does: {named}.",
                "install the same version and the same lock on client and workers, and restart the workers.",
            )


def _refuse(workers: list[str], what: str, next_step: str) -> None:
    if workers:
        raise ClusterError(f"{len(workers)} workers {what} ({name_some(workers, len(workers))}).", next_step)


def _answer(mark: Path, worker: str) -> Path:
    return mark.with_name(mark.name + "-" + "".join(c if c.isalnum() else "-" for c in worker))
