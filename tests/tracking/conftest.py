"""MLflow's database is made once for all tests (seconds), and copied (milliseconds)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.factory import make_result

from ew_pipeline import EntrywiseDetector, SalesMatrix
from ew_pipeline.core.settings import Settings
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.results import WeekResult
from ew_pipeline.tracking.model import save_model
from ew_pipeline.tracking.store import prepare_tracking


def draw_sales(seed: int = 0, stores: int = 24, skus: int = 18) -> SalesMatrix:
    """A small chain, a fifth of its pairs not observed, a few shelves empty."""
    rng = np.random.default_rng(seed)
    demand = np.outer(rng.gamma(4.0, 1.0, stores), rng.gamma(4.0, 0.5, skus))
    counts = np.where(rng.random(demand.shape) < 0.06, 0, rng.poisson(demand))
    return SalesMatrix.from_dense(counts, rng.random(demand.shape) < 0.8, week="2026-W34")


@pytest.fixture(scope="session")
def sales() -> SalesMatrix:
    return draw_sales()


@pytest.fixture(scope="session")
def fit(sales: SalesMatrix) -> DetectorFit:
    return EntrywiseDetector(mode="variational").fit(sales)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("mlflow-template")
    prepare_tracking(Settings(home=home))
    return home


@pytest.fixture
def settings(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home with a fresh MLflow; the current folder is an empty one beside it."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    home = tmp_path / "the home"
    home.mkdir()
    shutil.copy(template / "mlflow.db", home)
    return Settings(home=home)


@pytest.fixture
def computed(settings: Settings, fit: DetectorFit) -> Callable[..., WeekResult]:
    """A computed week whose segments have a real model."""

    def make(**arguments: Any) -> WeekResult:
        result = make_result(home=settings.root, **arguments)
        for segment in result.segments:
            save_model(fit, segment.model)
        return result

    return make
