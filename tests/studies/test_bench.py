"""`ew bench`: how figures are judged and told, and one start of the command. tests/trials measures more."""

import math

import numpy as np
import pytest
from support.bench import bench_document
from typer.testing import CliRunner

from ew_pipeline.cli.main import app
from ew_pipeline.core.errors import UsageError
from ew_pipeline.studies.bench.contenders import CONTENDERS, Contender
from ew_pipeline.studies.bench.measure import medians
from ew_pipeline.studies.bench.page import exponent, last_exponent, of_fits
from ew_pipeline.studies.bench.stored import Size, load, store
from ew_pipeline.studies.ensemble import SparseSettings, draw_sparse


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return store(Size(600, 400, 40_000, 3, 1), tmp_path_factory.mktemp("small"))


def test_stored_data_are_those_that_were_drawn(small):
    size = Size(600, 400, 40_000, 3, 1)
    drawn, read = draw_sparse(size.settings, np.random.default_rng(1)), load(small)
    np.testing.assert_array_equal(drawn.sales.counts, read.sales.counts)
    np.testing.assert_array_equal(drawn.sales.cols, read.sales.cols)
    np.testing.assert_array_equal(drawn.rates, read.rates)


def test_another_size_has_the_same_density():
    grown = Size(70_000, 10_000, 10_000_000).grown(1e5)
    assert (grown.rows, grown.cols, grown.observed) == (7000, 1000, 100_000)


def test_a_peer_that_cannot_run_says_why():
    size = Size(70_000, 10_000, 10_000_000)
    assert "not installed" in Contender("absent", "", lambda *_: None, "no_such_library").absent(size)
    assert "no_such_program" in Contender("x", "", lambda *_: None, "numpy", "no_such_program").absent(size)
    assert "22 GB" in Contender("x", "", lambda *_: None, "numpy", dense=True).absent(size)
    assert not CONTENDERS[0].absent(size)


def test_requirements_are_judged_by_ratios_of_one_run_in_both_times():
    figures = {
        name: {"cpu_s": cpu, "wall_s": wall, "extra_gb": 0.4, "observed_error": 0.1, "unobserved_error": 0.1}
        for name, cpu, wall in (
            ("ours: fast", 2.0, 1.5),
            ("implicit ALS", 18.0, 9.0),
            ("ours: default, fixed rank", 20.0, 8.0),
        )
    }
    verdicts = {line.what: line for line in of_fits(figures)}
    fast = [verdicts[f"fast, sales to f, beside implicit, {time}"] for time in ("CPU", "wall")]
    assert [line.seen for line in fast] == pytest.approx([9.0, 6.0])
    assert [line.passed for line in fast] == [True, None]  # the limit is on CPU time
    assert verdicts["default at a fixed rank, beside implicit, CPU"].passed is False
    assert verdicts["default at a fixed rank, beside implicit, wall"].passed
    missing = verdicts["ALS as cmfrec (rank, lambda, sweeps), CPU"]
    assert (missing.passed, missing.words) == (None, "not run")


def test_of_several_turns_the_middle_counts_and_all_are_kept():
    turns = [{"cpu_s": cpu, "extra_gb": gb, "units": 7} for cpu, gb in ((3.0, 0.1), (1.0, 0.3), (2.0, 0.2))]
    found = medians(turns)
    assert (found["cpu_s"], found["extra_gb"], found["units"]) == (2.0, 0.2, 7)
    assert found["turns"][1] == {"cpu_s": 1.0, "extra_gb": 0.3}


def test_the_exponent_is_the_slope_of_the_logarithms():
    assert exponent([(1e5, 0.1), (1e6, 1.0), (1e7, 10.0)]) == pytest.approx(1.0)
    assert exponent([(10.0, 3.0), (1000.0, 30.0)]) == pytest.approx(0.5)
    assert last_exponent([(1e7, 40.0), (1e5, 0.1), (1e6, 1.0)]) == pytest.approx(math.log10(40.0))


def test_too_few_pairs_are_refused():
    answer = CliRunner().invoke(app, ["bench", "--observed", "10"], standalone_mode=False)
    assert isinstance(answer.exception, UsageError)


@pytest.mark.parametrize("size", [None, 5.0])
def test_sparse_data_have_the_pairs_rates_and_anomalies_asked_for(size):
    settings = SparseSettings(n=400, m=300, observed=30_000, rank=2, dispersion_size=size)
    drawn = draw_sparse(settings, np.random.default_rng(0))
    assert drawn.sales.n_observed == 30_000
    np.testing.assert_allclose(
        drawn.rates,
        np.einsum("er,er->e", drawn.left[drawn.sales.rows], drawn.right[drawn.sales.cols]),
    )
    assert drawn.anomalous.mean() == pytest.approx(0.04, abs=0.005)
    healthy = ~drawn.anomalous
    sold = drawn.sales.counts[healthy] / drawn.rates[healthy]
    assert drawn.sales.counts[healthy].sum() == pytest.approx(drawn.rates[healthy].sum(), rel=0.03)
    assert drawn.sales.counts[~healthy].sum() == pytest.approx(0.2 * drawn.rates[~healthy].sum(), rel=0.25)
    assert np.isfinite(sold).all()


def test_more_than_half_of_all_pairs_is_refused():
    with pytest.raises(UsageError, match="at most half"):
        SparseSettings(n=10, m=10, observed=60)


@pytest.mark.server
def test_the_command_prints_one_json_document(monkeypatch):
    document = bench_document(monkeypatch, instances=0, repeats=1)
    figures = document["contenders"]["ours: default, fixed rank"]
    assert figures["facts"]["rank"] == 2
    assert document["size"]["observed"] == 30_000
    assert len(figures["turns"]) == len(document["reading"]["ours"]["turns"]) == 1
    assert document["machine"]["pandas"]
    assert {line["what"] for line in document["requirements"]} >= {
        "default at a fixed rank, beside implicit, CPU"
    }
