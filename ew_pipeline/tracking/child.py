"""``tracking.worker`` as a child process, and its answers as they come."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ew_pipeline.core.provenance import PACKAGE
from ew_pipeline.core.settings import Settings
from ew_pipeline.tracking.store import quiet_environment, shown


class NoAnswer(Exception):
    """The process beside has ended, or takes too long."""


class Child:
    """The process; it starts at once, and ends when it is stopped or this object is gone."""

    def __init__(self, settings: Settings) -> None:
        environment = dict(os.environ)
        quiet_environment(environment)
        # a package that was found from the current folder must also be found by the child
        places = (str(PACKAGE.parent), environment.get("PYTHONPATH"))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        self.uri = shown(settings.tracking_uri)
        self.busy = False
        self.noise = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  what libraries print; read if it dies
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ew_pipeline.tracking.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.noise,
            env=environment,
            text=True,
        )
        self.answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=_read, args=(self.process.stdout, self.answers), daemon=True).start()
        self.stop = weakref.finalize(self, _end, self.process, self.noise)
        self._write({"home": str(settings.root), "tracking_uri": settings.mlflow_tracking_uri})

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, folder: Path, seconds: float, *, whole: bool) -> dict[str, Any]:
        """Have the run in ``folder`` delivered. Unless ``whole``, the id of its MLflow run is answer enough,
        and the rest is sent while the caller goes on."""
        self._write({"folder": str(folder)})
        self.busy = True
        answer = self._next(seconds)
        if "run" in answer and not whole:
            run: dict[str, Any] = answer["run"]
            return run
        return self.rest(seconds) if "run" in answer else self._done(answer)

    def rest(self, seconds: float) -> dict[str, Any]:
        """How the delivery that is under way ended; nothing if there is none."""
        if not self.busy:
            return {}
        answer = self._next(seconds)
        while "done" not in answer:  # a second try names the run again
            answer = self._next(seconds)
        return self._done(answer)

    def _done(self, answer: dict[str, Any]) -> dict[str, Any]:
        self.busy = False
        done: dict[str, Any] = answer["done"]
        return done

    def _next(self, seconds: float) -> dict[str, Any]:
        try:
            answer = self.answers.get(timeout=seconds)
        except queue.Empty:
            raise NoAnswer(f"MLflow at {self.uri} took more than {seconds:.0f} s") from None
        if answer is None:
            raise NoAnswer(self._last_words())
        return answer

    def _write(self, line: object) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # it has ended: the answer that does not come says so
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()

    def _last_words(self) -> str:
        self.noise.seek(0)
        lines = self.noise.read().split("\n")
        words = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return f"the tracking process ended with code {self.process.wait(10)}: {words[:200]}"


def _read(stream: IO[str], answers: queue.Queue[dict[str, Any] | None]) -> None:
    for line in stream:
        answers.put(json.loads(line))
    answers.put(None)


def _end(process: subprocess.Popen[str], noise: IO[str]) -> None:
    """Close its input, upon which it ends; if it is stuck in a call, make it."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    noise.close()
