"""The repository keeps its own promises: one version, a lock that can be trusted, commands that exist."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import ew_pipeline

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "infra" / "requirements.lock").read_text()
PINS = [re.split(r"\\\n", block) for block in re.split(r"\n(?=\S)", LOCK.strip())]


def repository_files() -> list[Path]:
    """Tracked files, and new ones that are not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_the_version_is_written_once():
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "ew_pipeline/_version.py"
    written = [
        path.name
        for path in (ROOT / "ew_pipeline").rglob("*.py")
        if re.search(r"^__version__ *=", path.read_text(), re.MULTILINE)
    ]
    assert written == ["_version.py"]


def test_the_installed_version_is_that_of_the_source():
    assert importlib.metadata.version("ew-pipeline") == ew_pipeline.__version__


def test_every_pin_is_exact_and_has_a_hash():
    assert len(PINS) > 20
    for pin, *hashes in PINS:
        assert re.match(r"[a-z0-9._-]+==[^ ]+", pin), pin
        assert hashes, pin
        assert all(re.fullmatch(r" +--hash=sha256:[0-9a-f]{64} *", line) for line in hashes), pin


def test_the_lock_names_no_host():
    assert "://" not in LOCK
    assert "--index" not in LOCK


def test_the_lock_covers_every_requirement_of_users_and_developers():
    extras = PROJECT["project"]["optional-dependencies"]
    chosen = [extra for name, extra in extras.items() if name != "bench"]  # other libraries, only to be timed
    wanted = [*PROJECT["project"]["dependencies"], *(need for extra in chosen for need in extra)]
    names = {re.split(r"[^A-Za-z0-9._-]", need)[0].lower() for need in wanted}
    assert names <= {pin.partition("==")[0] for pin, *_ in PINS}, "run: make lock"


def test_no_file_names_a_home_folder():
    # The pattern is spelled so that it does not match itself.
    home = re.compile(rb"/(?:home|Users)/[A-Za-z]|/roo[t]/")
    named = [str(path.relative_to(ROOT)) for path in repository_files() if home.search(path.read_bytes())]
    assert named == []


@pytest.mark.server
def test_make_alone_lists_every_command():
    if shutil.which("make") is None:
        pytest.skip("no make")
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = re.findall(r"^  make (\w+) +\S", listed, re.MULTILINE)
    assert sorted(targets) == [
        "bench",
        "clean",
        "experiments",
        "help",
        "lint",
        "lock",
        "run",
        "setup",
        "test",
        "trials",
    ]


def test_the_ci_script_runs_the_commands_of_the_readme():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text().splitlines() if line.startswith("make ")]
    assert commands == ["make lint", "make test"]
    readme = (ROOT / "README.md").read_text()
    assert all(re.search(rf"^{command}\b", readme, re.MULTILINE) for command in commands)
