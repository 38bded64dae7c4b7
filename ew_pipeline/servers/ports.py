"""Ports of this machine: one that listens, or words about why not."""

from __future__ import annotations

import errno
import socket

from ew_pipeline.core.errors import EwError, UsageError

LOOPBACK = "127.0.0.1"
BACKLOG = 128


def listening(host: str, port: int, option: str = "--port") -> socket.socket:
    """A socket that listens there; ``port`` 0 is any free one. ``option``: what chooses another."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except OSError:
        raise UsageError(
            f"{host!r} is not an address of this machine.", "leave --host out, or 0.0.0.0"
        ) from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _refused(host, port, option, error) from error
    return listener


def free_port() -> int:
    with listening(LOOPBACK, 0) as probe:
        return int(probe.getsockname()[1])


def _refused(host: str, port: int, option: str, error: OSError) -> EwError:
    if error.errno == errno.EADDRINUSE:
        return EwError(
            f"port {port} of {host} is taken by another program.",
            f"end it (`ss -ltnp 'sport = :{port}'` names it), or choose another; {option} 0 is a free one.",
        )
    if error.errno == errno.EACCES:
        return EwError(f"port {port} is not for this user.", f"choose one above 1023: {option} 8080")
    return UsageError(f"cannot listen on {host}:{port}: {error.strerror}.", "leave --host out, or 0.0.0.0")
