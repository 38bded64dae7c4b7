"""`ew bench`: real child processes on small data; figures are looked at for sense, never for speed."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from ew_pipeline.bench import command
from ew_pipeline.bench.command import draw_growth, exponent
from ew_pipeline.bench.contenders import CONTENDERS, Contender
from ew_pipeline.bench.measure import Size, measure
from ew_pipeline.cli import app
from ew_pipeline.data.synthetic_sparse import SparseSettings, draw_sparse
from ew_pipeline.errors import FitError, UsageError


def test_a_contender_is_measured_in_its_own_process():
    ours = next(c for c in CONTENDERS if c.name == "ours: ALS alone")
    figures = measure(ours, Size(600, 400, 40_000, 3, 1))
    assert figures["cpu_s"] > 0.0
    assert figures["wall_s"] > 0.0
    assert 0.0 < figures["observed_error"] < 0.5
    assert 0.0 < figures["unobserved_error"] < 0.5


def test_a_peer_that_is_not_installed_says_what_to_install():
    absent = Contender("absent", "", lambda instance, rank: None, "no_such_library")
    assert "ew-pipeline[bench]" in absent.missing
    assert not CONTENDERS[0].missing


def test_a_child_that_fails_is_named():
    with pytest.raises(FitError, match="scipy svds failed"):
        measure(CONTENDERS[-1], Size(30, 20, 200, 25, 0))


def test_the_exponent_is_the_slope_of_the_logarithms():
    assert exponent([(1e5, 0.1), (1e6, 1.0), (1e7, 10.0)]) == pytest.approx(1.0)
    assert exponent([(10.0, 3.0), (1000.0, 30.0)]) == pytest.approx(0.5)


def test_the_growth_is_drawn(tmp_path):
    draw_growth({"ours": {"cpu_s": [(1e5, 0.1), (1e6, 1.0)], "exponent": 1.0}}, tmp_path / "growth.svg")
    assert (tmp_path / "growth.svg").read_text().count("<path") > 2


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


def test_the_command_prints_one_json_document(monkeypatch):
    one = tuple(c for c in CONTENDERS if c.name == "ours: default, fixed rank")
    monkeypatch.setattr(command, "CONTENDERS", one)
    asked = ["bench", "--observed", "3e4", "--rows", "500", "--cols", "300", "--rank", "2", "--json"]
    document = json.loads(CliRunner().invoke(app, asked).stdout)
    figures = document["contenders"]["ours: default, fixed rank"]
    assert figures["facts"]["rank"] == 2
    assert document["size"]["observed"] == 30_000
