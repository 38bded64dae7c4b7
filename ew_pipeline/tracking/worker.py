"""The process that talks to MLflow: ``python -m ew_pipeline.tracking.worker``, started by ``weekly``.

Lines of JSON in: the settings, then one run folder each. Lines out, for each folder: the MLflow run as soon
as it has an id (the report wants it), and the outcome. It ends when its input does, so with the run that
started it, however that ends.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.tracking.delivery import deliver, deliver_all
from ew_pipeline.tracking.send import SentRun
from ew_pipeline.tracking.store import TrackingError, prepare_tracking

PAUSES = (1.0, 4.0)  # seconds between tries


def main() -> None:
    """Get MLflow ready, then deliver what is asked for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run; we end when it does
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no answer
    lines: queue.Queue[str] = queue.Queue()
    idle = threading.Event()
    idle.set()
    threading.Thread(target=_listen, args=(lines, idle), daemon=True).start()
    settings = _settings(lines.get())
    try:
        prepare_tracking(settings)
        import mlflow.pyfunc  # noqa: F401  while the run is still fitting

        deliver_all(settings)  # weeks that were published while MLflow was away
    except EwError:
        pass  # the server may be there by the time it is needed, and if not, that is the answer then
    while True:
        folder = Path(json.loads(lines.get())["folder"])
        idle.clear()
        _answer(
            answers, {"done": _deliver(folder, settings, lambda run: _answer(answers, {"run": asdict(run)}))}
        )
        idle.set()


def _listen(lines: queue.Queue[str], idle: threading.Event) -> None:
    """No more input: the run is over, or was killed. End, but not in the middle of a delivery."""
    for line in sys.stdin:
        lines.put(line)
    idle.wait()
    os._exit(0)


def _deliver(
    folder: Path, settings: Settings, on_run: Callable[[SentRun], None] | None = None
) -> dict[str, str | None]:
    for pause in (*PAUSES, None):
        try:
            delivered = deliver(folder, settings, on_run)
        except TrackingError as error:
            if pause is None:
                return {"reason": error.message.rstrip(".")}
            time.sleep(pause)
        except (EwError, OSError) as error:
            return {"reason": str(error).partition("\n")[0].rstrip(".")}
        else:
            return {"run_id": delivered.mlflow_run_id, "url": delivered.url, "reason": None}
    raise AssertionError("the last try returns")


def _settings(line: str) -> Settings:
    given = json.loads(line)
    return Settings(home=Path(given["home"]), MLFLOW_TRACKING_URI=given["tracking_uri"])


def _answer(answers: TextIO, answer: object) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
