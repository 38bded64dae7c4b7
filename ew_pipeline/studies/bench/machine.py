"""What the figures were taken on: they mean nothing without it."""

from __future__ import annotations

import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from ew_pipeline.core.arrays import available_threads
from ew_pipeline.core.provenance import code_version, environment

PEERS = ("implicit", "cmfrec", "pyspark", "scipy", "fancyimpute", "pandas")
CPU_FACTS = Path("/proc/cpuinfo")


def machine() -> dict[str, str]:
    """Processor, cores, memory, Java, the code and the versions of all that is compared."""
    found = {
        "processor": _processor(),
        "cores": str(available_threads()),
        "memory": f"{psutil.virtual_memory().total / 1e9:.0f} GB",
        "code": code_version(),
        **environment(),
    }
    for peer in PEERS:
        try:
            found[peer] = version(peer)
        except PackageNotFoundError:
            continue
    if java := _java():
        found["java"] = java
    return found


def said_machine(found: dict[str, str]) -> str:
    """The same in a sentence."""
    named = ", ".join(f"{name} {found[name]}" for name in (*PEERS, "numba", "java") if name in found)
    return (
        f"{found['cores']} cores of {found['processor']}, {found['memory']}; ew-pipeline {found['code']}, "
        f"Python {found['python']}, {named}."
    )


def _processor() -> str:
    if CPU_FACTS.is_file():
        for line in CPU_FACTS.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _java() -> str | None:
    if shutil.which("java") is None:
        return None
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    words = (done.stderr or done.stdout).split('"')
    return words[1] if len(words) > 1 else None
