"""A real browser for the tests of the pages: the machine's Chromium, installed when it is absent.

Import it as ``from browser import chromium, open_page`` (``tests/`` is on the path of every test).
"""

from __future__ import annotations

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
INSTALL = (
    ["apt-get", "update", "-qq"],
    ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"],
)


@dataclass
class Watched:
    """What a page did while it was open."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def find_chromium() -> str | None:
    """The browser on the path, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install_chromium() -> str:
    """Install the browser as root on Debian; else skip the test and say what is missing.

    Tests run in several processes: the first installs, the others wait for it.
    """
    if found := find_chromium():
        return found
    if not shutil.which("apt-get") or os.geteuid() != 0:
        pytest.skip("no Chromium on the path, and it cannot be installed here (needs apt-get and root)")
    with (Path(tempfile.gettempdir()) / "ew-tests-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if found := find_chromium():
            return found
        for command in INSTALL:
            done = subprocess.run(
                command,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            if done.returncode != 0:
                pytest.skip(f"Chromium cannot be installed: {done.stderr.strip()[-300:]}")
    found = find_chromium()
    assert found is not None, "apt-get installed chromium, but it is not on the path"
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser, ended with the block."""
    from playwright.sync_api import sync_playwright

    path = install_chromium()
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
