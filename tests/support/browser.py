"""A real browser for the tests of the pages: the machine's Chromium.

Where it is absent, it is installed in the background as soon as tests that need it have been collected.

Import it as ``from browser import chromium, open_page`` (``tests/`` is on the path of every test).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
INSTALL = "apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium"
LOCK = Path(tempfile.gettempdir()) / "ew-tests-chromium.lock"
LOG = LOCK.with_suffix(".log")


@dataclass
class Watched:
    """What a page did while it was open."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def find_chromium() -> str | None:
    """The browser on the path, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install_in_the_background() -> None:
    """As root on Debian; elsewhere nothing. Of several processes that ask, the first does it."""
    if find_chromium() or not can_install():
        return
    with LOCK.open("w") as lock, LOG.open("ab") as log, contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The lock is the open file's: it is held until the child, which inherits that, has ended.
        subprocess.Popen(
            ["sh", "-c", INSTALL],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock.fileno()],
            start_new_session=True,
        )


def can_install() -> bool:
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def wait_for_chromium() -> str:
    """The browser once it is installed; else skip the test and say what is missing."""
    if found := find_chromium():
        return found
    if not can_install():
        pytest.skip("no Chromium on the path, and it cannot be installed here (needs apt-get and root)")
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    found = find_chromium()
    if found is None:
        said = LOG.read_text(errors="replace").strip() if LOG.exists() else "nobody has tried"
        pytest.skip(f"Chromium could not be installed: {said[-300:]}")
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser, ended with the block."""
    from playwright.sync_api import sync_playwright

    path = wait_for_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(
    browser: Browser, address: str, width: int = 1280, height: int = 800, **options: Any
) -> Iterator[Watched]:
    """Open ``address`` in a fresh context and watch its console and what it asks the network for."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    context.set_default_timeout(15_000)
    try:
        watched = Watched(context.new_page())
        watched.page.on("console", lambda message: watched.console.append(f"{message.type}: {message.text}"))
        watched.page.on("pageerror", lambda error: watched.console.append(f"error: {error}"))
        watched.page.on("request", lambda request: watched.requests.append(request.url))
        watched.page.goto(address)
        yield watched
    finally:
        context.close()
