"""Waits for `ew up` to end, however it ends, and then for nothing of it to be left.

Its standard input is a pipe that `ew up` holds open and never writes to: the kernel closes it with its
holder. Run as ``python -m ew_pipeline.servers.sentinel MARK``.
"""

from __future__ import annotations

import signal
import sys

from ew_pipeline.servers.supervisor import end_all, of_mark


def main() -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    mark = sys.argv[1]
    sys.stdin.buffer.read()
    end_all(lambda: of_mark(mark))


if __name__ == "__main__":
    main()
