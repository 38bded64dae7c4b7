"""`ew bench` in real child processes, on small data; figures are looked at for sense, never for speed."""

import pytest
from support.bench import bench_document

from ew_pipeline.core.errors import FitError
from ew_pipeline.studies.bench import command
from ew_pipeline.studies.bench.command import compare
from ew_pipeline.studies.bench.contenders import CONTENDERS
from ew_pipeline.studies.bench.measure import measure
from ew_pipeline.studies.bench.page import (
    bandwidth,
    draw_growth,
    grow,
    lines,
)
from ew_pipeline.studies.bench.reading import compare_readers
from ew_pipeline.studies.bench.stored import Size, load, store

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return store(Size(600, 400, 40_000, 3, 1), tmp_path_factory.mktemp("small"))


def named(name):
    return next(c for c in CONTENDERS if c.name == name)


def test_a_contender_is_measured_in_its_own_process(small):
    figures = measure(named("ours: ALS as cmfrec"), small, 3)
    assert figures["cpu_s"] > 0.0
    assert figures["wall_s"] > 0.0
    assert 0.0 < figures["observed_error"] < 0.5
    assert 0.0 < figures["unobserved_error"] < 0.5


def test_a_child_that_fails_is_named_and_only_a_peer_may(tmp_path):
    folder = store(Size(30, 20, 200, 25, 0), tmp_path)
    with pytest.raises(FitError, match="scipy svds failed"):
        measure(named("scipy svds"), folder, 25)
    found, failed = compare([named("scipy svds")], folder, 25, 1)
    assert not found
    assert "failed" in failed["scipy svds"]
    with pytest.raises(FitError, match="ours: ALS failed"):
        compare([named("ours: ALS")], folder, 25, 1)


def test_every_step_is_timed_and_the_growth_drawn(tmp_path):
    steps = grow(Size(600, 400, 40_000, 3, 1), [5e3, 2e4])
    assert [one["observed"] for one in steps] == [5000, 20_000]
    found = lines(steps)
    assert {"posterior", "bins", "choice of the rank", "least-squares sweep", "whole fit, default"} <= set(
        found
    )
    assert all(seconds > 0.0 for points in found.values() for _, seconds in points)
    shares = bandwidth(steps[-1])
    assert "theta and noise" not in shares  # bound by arithmetic
    assert all(one["share"] > 0.0 for one in shares.values())
    draw_growth(found, tmp_path / "growth.svg")
    assert (tmp_path / "growth.svg").read_text().count("<path") > len(found)


def test_both_readers_see_the_same_units(small):
    read = compare_readers(small)
    assert read["ours"]["units"] == read["pandas"]["units"] == load(small).sales.counts.sum()
    assert all(figures["warm_up_cpu_s"] > 0.0 for figures in read.values())
    assert not (small / "long.parquet").exists()


def test_the_command_prints_one_json_document(monkeypatch):
    monkeypatch.setattr(command, "SAMPLED_PAIRS", 2000)
    document = bench_document(monkeypatch, instances=1, repeats=2)
    figures = document["contenders"]["ours: default, fixed rank"]
    assert figures["facts"]["rank"] == 2
    assert document["size"]["observed"] == 30_000
    assert len(figures["turns"]) == len(document["reading"]["ours"]["turns"]) == 2
    assert document["machine"]["pandas"]
    asked_of = {line["what"] for line in document["requirements"]}
    assert {"100 x 100, thorough, mean", "sampler, per pair and sweep, threads: 2"} <= asked_of
