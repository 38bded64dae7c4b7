"""Passwords of source URLs: they are in the environment (``EW_SALES``, ``EW_LISTING``, …) and nowhere else.

What is stored or shown (parameters of flows, messages, commands to type) has ``***`` in their place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ew_pipeline.core.child import in_environment
from ew_pipeline.core.errors import UsageError

HIDDEN = "***"
SECRET_OPTION = re.compile("pass|pwd|secret|token|odbc_connect", re.IGNORECASE)  # of a URL, after its ?


def without_password(spec: str) -> str:
    """Return a URL with ``***`` for its password; anything without a password as it is."""
    if "://" not in spec:
        return spec
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    address, separator, rest = spec.partition("#")
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):  # not a URL after all; any part of it may be a password
        return f"{address.split('://')[0]}://{HIDDEN}"
    options = [name for name in url.query if SECRET_OPTION.search(name)]
    if not url.password and not options:
        return spec
    shown = url.difference_update_query(options).render_as_string(hide_password=True)
    for name in options:
        shown += f"{'&' if '?' in shown else '?'}{name}={HIDDEN}"
    return shown + separator + rest


def with_passwords(**sources: str | None) -> dict[str, Any]:
    """Return sources by table, each URL with the password that ``without_password`` took out of it.

    The whole URL is in the table's variable: for ``sales`` in EW_SALES.
    """
    found: dict[str, Any] = {}
    for name, spec in sources.items():
        given = from_environment(name)
        whole = given if given is not None and spec == without_password(given) else spec
        if whole is not None and "://" in whole and HIDDEN in whole.partition("#")[0]:
            raise UsageError(
                f"the password of the {name} {spec} is not in this process.",
                f"set {_variable(name)} to the whole URL, for a flow of a worker before the worker starts.",
            )
        found[name] = whole
    return found


@contextmanager
def passwords_in_environment(sources: Mapping[str, str | None]) -> Iterator[dict[str, Any]]:
    """Give the sources without their passwords, which ``with_passwords`` finds during the block."""
    shown: dict[str, Any] = {
        name: spec if spec is None else without_password(spec) for name, spec in sources.items()
    }
    whole = {_variable(name): spec for name, spec in sources.items() if spec and spec != shown[name]}
    with in_environment(whole):
        yield shown


def from_environment(name: str) -> str | None:
    """Return the source that the variable of this table names, if it is set."""
    return os.environ.get(_variable(name)) or None


def _variable(name: str) -> str:
    return f"EW_{name.upper()}"
