"""A home with published, held and failed weeks, and a real server over it: for tests of the pages.

Import it as ``from support.served import …`` (``tests/`` is on the path of every test).
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
from support.audit_world import World
from support.factory import held_result, make_result, make_scores

from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Publication
from ew_pipeline.outputs.check_list import write_check_lists
from ew_pipeline.outputs.page import write_report
from ew_pipeline.weekly.attempt import show_live

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = 'Köln/1 <img src=x onerror=alert(1)> "&%2F'  # a store
HOSTILE_SKU = "1/2' ü#?;"
FIRST, LAST, HELD, NEXT = "2026-W33", "2026-W34", "2026-W35", "2026-W36"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> object:
        return json.loads(self.body)


def publish_with_page(world: World, week: str, scores: pd.DataFrame) -> Publication:
    """A week with its real page and lists."""
    coverage = replace(make_result(week, scores=scores).coverage, zero_rule="explicit")
    result = world.compute(week, scores=scores, coverage=coverage)
    write_report(result, series=pd.DataFrame(), previous=None, links={}, folder=result.folder)
    publication = world.ledger.publish(result, by="ana", report=result.folder / "report.html")
    show_live(publication, world.settings)
    return publication


def hostile_scores(stores: int = 4) -> pd.DataFrame:
    scores = make_scores(np.random.default_rng(0), stores, 6)
    scores["store_id"] = scores["store_id"].replace({"S003": HOSTILE})
    scores["sku_id"] = scores["sku_id"].replace({"K003": HOSTILE_SKU})
    return scores.sort_values(["store_id", "sku_id"], ignore_index=True)


def make_home(home: Path) -> World:
    """Two published weeks (the second with hostile names), and one that was held back."""
    world = World.make(home)
    world.publish(FIRST)
    publish_with_page(world, LAST, hostile_scores())
    held = held_result(week=HELD, home=world.settings.root, data_hash=world.keep_snapshot(Week.parse(HELD)))
    write_check_lists(held, held.folder)
    write_report(held, series=pd.DataFrame(), previous=None, links={}, folder=held.folder)
    world.ledger.record_run(held, "held", by="ana")
    return world


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "NUMBA_CACHE_DIR", "LANG") if name in os.environ}
    return {**kept, "HOME": str(home.parent), "EW_HOME": str(home), "PYTHONPATH": str(ROOT)}


def serve_words(*options: str) -> list[str]:
    return [sys.executable, "-m", "ew_pipeline.cli", "serve", *options]


@contextmanager
def serving(home: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """``ew serve`` on a free port: its address and its process."""
    process = subprocess.Popen(
        serve_words("--port", "0", "--json"),
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line)["address"], process
    finally:
        process.terminate()
        assert process.wait(20) == 0, process.stderr.read()
        process.stdout.close()
        process.stderr.close()


def ask(address: str, path: str, method: str = "GET") -> Answer:
    """The path exactly as it is written: nothing is tidied on the way."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, headers, answer.read())
    finally:
        connection.close()
