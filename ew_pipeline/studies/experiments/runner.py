"""Run many tasks: in parallel, with progress, and so that a stopped study goes on where it stopped.

Finished records are appended to a file of JSON lines, each with the identity of its task and the stamp of the
code that made it. A record is taken over only if both agree with what would be run now. Studies of the same
kind of task share a file, and so each other's records.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ew_pipeline import __version__
from ew_pipeline.core.child import end_with_parent, in_environment
from ew_pipeline.core.console import messages
from ew_pipeline.core.errors import EwError, FitError, UsageError
from ew_pipeline.core.provenance import PACKAGE

# Of a worker. Libraries read them when they are loaded: they have to be set before it starts.
ONE_THREAD = dict.fromkeys(
    ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
IN_THIS_PROCESS = 0
Row = dict[str, Any]


class Task(Protocol):
    """Something to run: a name for messages, and everything its outcome depends on as plain values."""

    @property
    def name(self) -> str: ...
    def identity(self) -> Mapping[str, Any]: ...


T = TypeVar("T", bound=Task)


class Study(Generic[T]):
    """How tasks of one kind are run.

    Parameters
    ----------
    title : shown beside the progress bar.
    records : name of the file of records; the title by default.
    work : task -> a record that JSON can hold. A module-level function: workers are new processes.
    prepare : done once in every worker before its first task.
    sources : files and folders of the package on which a record depends.
    """

    def __init__(
        self,
        title: str,
        work: Callable[[T], Row],
        *,
        prepare: Callable[[], None],
        sources: Sequence[str],
        records: str | None = None,
    ) -> None:
        self.title = title
        self.records = records or title
        self.work = work
        self.prepare = prepare
        self.sources = tuple(sources)

    def run(self, tasks: Sequence[T], *, jobs: int, folder: Path | None = None) -> list[Row]:
        """The records in the order of the tasks. ``jobs`` processes; 0 runs in this one, for debugging."""
        stamp = {"version": __version__, "code": code_hash(self.sources)}
        keys = [_key(task.identity(), stamp) for task in tasks]
        log = None if folder is None else _opened(folder / f"{self.records}.jsonl")
        with _held(log):
            done = {} if log is None else _read(log)
            todo = [(key, task) for key, task in zip(keys, tasks, strict=True) if key not in done]
            with _progress(self.title, len(tasks), len(tasks) - len(todo)) as advance:
                for key, row in self._rows(todo, jobs):
                    done[key] = row
                    if log is not None:
                        with log.open("a", encoding="utf-8") as file:
                            file.write(json.dumps({"key": json.loads(key), "record": row}) + "\n")
                    advance()
        return [done[key] for key in keys]

    def _rows(self, todo: Sequence[tuple[str, T]], jobs: int) -> Iterator[tuple[str, Row]]:
        if jobs == IN_THIS_PROCESS:
            for key, task in todo:
                # Through JSON, as if it had been read back: a resumed study must not differ in a bit.
                yield key, json.loads(json.dumps(self._named(task)))
            return
        if not todo:
            return
        with in_environment(ONE_THREAD):
            pool = ProcessPoolExecutor(
                min(jobs, len(todo)), mp_context=get_context("spawn"), initializer=self._begin
            )
            try:
                pending: dict[Future[Row], str] = {pool.submit(self._named, task): key for key, task in todo}
                while pending:
                    finished, _ = wait(pending, return_when=FIRST_COMPLETED)
                    for future in finished:
                        yield pending.pop(future), json.loads(json.dumps(future.result()))
            except BrokenProcessPool as error:
                raise FitError(
                    "a worker ended before its task was done, perhaps for lack of memory.",
                    "run again with fewer --jobs; with --out the finished records are kept.",
                ) from error
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _begin(self) -> None:
        end_with_parent()  # or a worker of a killed study would wait for tasks for ever
        self.prepare()

    def _named(self, task: T) -> Row:
        try:
            return self.work(task)
        except EwError as error:
            raise type(error)(f"{task.name}: {error.message}", error.next_step) from error
        except Exception as error:
            raise RuntimeError(f"{task.name}: {type(error).__name__}: {error}") from error


def code_hash(sources: Sequence[str]) -> str:
    """Hash of the meaning of the files: neither layout nor comments count. Each source must hold a file."""
    digest = hashlib.sha256()
    for source in sources:
        path = PACKAGE / source
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []
        if not files:
            raise EwError(
                f"{path} is no file and holds none, and the records of a study depend on it.",
                "correct the study's sources, or install ew-pipeline again.",
            )
        for file in files:
            digest.update(file.relative_to(PACKAGE).as_posix().encode())
            digest.update(ast.dump(ast.parse(file.read_text(encoding="utf-8"))).encode())
    return digest.hexdigest()[:16]


def _key(identity: Mapping[str, Any], stamp: Mapping[str, str]) -> str:
    return json.dumps({**identity, "stamp": stamp}, sort_keys=True)


def _opened(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise UsageError(
            f"records cannot be written to {path}: {error.strerror}.", "choose another --out."
        ) from error
    return path


@contextmanager
def _held(path: Path | None) -> Iterator[None]:
    """Nobody else writes records here meanwhile: a half-written line of theirs would be cut off as ours."""
    if path is None:
        yield
        return
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another study is writing to {path}.", "wait for it, or choose another --out."
            ) from None
        yield


def _read(path: Path) -> dict[str, Row]:
    """Records by key. A half-written last line is removed, so that the next record starts a line."""
    found: dict[str, Row] = {}
    good = 0
    with path.open("rb") as file:
        for line in file:
            try:
                entry = json.loads(line)
                if not line.endswith(b"\n"):
                    break
                found[json.dumps(entry["key"], sort_keys=True)] = entry["record"]
            except (ValueError, KeyError, TypeError):
                if not line.endswith(b"\n"):
                    break
                raise UsageError(
                    f"{path} holds a line that is no record, after {len(found)} that are.",
                    "choose another --out, or remove the file.",
                ) from None
            good += len(line)
    if good < path.stat().st_size:
        os.truncate(path, good)
    return found


@contextmanager
def _progress(title: str, total: int, completed: int) -> Iterator[Callable[[], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=messages(), transient=not messages().is_terminal) as progress:
        bar = progress.add_task(title, total=total, completed=completed)
        yield lambda: progress.advance(bar)
