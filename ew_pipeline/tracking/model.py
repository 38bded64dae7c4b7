"""A fitted detector on disk: ``model.json`` for people, ``arrays.npz`` for numbers. No pickles.

Equal fits give equal bytes, so that a hash says whether two models are the same; both files are hashed
into ``model.json``, so that one that was cut short or changed is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import EwError, UsageError
from ew_pipeline.core.provenance import canonical_hash, code_version, environment, file_hash
from ew_pipeline.method.anomalies import BUILT_IN, AnomalyModel
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.folds import RankCurve
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.theta import Theta
from ew_pipeline.tracking.files import (
    ARRAYS,
    DESCRIPTION,
    FORMAT,
    read_arrays,
    read_description,
    refuse,
    replace_file,
    write_arrays,
)

PER_PAIR = ("posterior", "expected_sales", "expected_cv", "cavity_sales", "cavity_cv")


@dataclass(frozen=True, eq=False)
class PricedPairs:
    """The probability that was priced where it is not the fit's own.

    ``probability`` in the order of the fit; ``form`` and ``calibration``: see ``weekly.records.Pricing``.
    """

    probability: Float
    form: str
    calibration: str | None


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A fit read back.

    Attributes
    ----------
    fit : as it was when it was saved, number by number. A user's own anomaly model is known by name only,
        unless ``load_model`` was given it.
    level : the pairs' level from history, in the order of the fit; None when there was none.
    priced : the probability that was priced; None when it is the fit's own.
    versions : of the code and the libraries that made it.
    sha256 : of the whole model.
    """

    fit: DetectorFit
    level: Float | None
    versions: Mapping[str, str]
    sha256: str
    priced: PricedPairs | None = None

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """``anomaly_probability`` and ``expected_units`` for each row of ``frame``; see ``predict``."""
        from ew_pipeline.tracking.predict import predict

        priced = None if self.priced is None else self.priced.probability
        return predict(self.fit, frame, uses_level=self.level is not None, priced=priced)


def save_model(
    fit: DetectorFit, folder: Path, *, level: ArrayLike | None = None, priced: PricedPairs | None = None
) -> Path:
    """Write the fit into ``folder`` and return it. ``level``: what ``EntrywiseDetector.fit`` was given;
    ``priced``: the probability that is priced, where it is not the fit's own.

    A model that is there already is replaced; interrupted at any point, what is left is the old one or is
    refused by ``load_model``.
    """
    sales = fit.sales
    arrays: dict[str, NDArray[Any]] = {
        "store_ids": sales.store_ids,
        "sku_ids": sales.sku_ids,
        "indptr": sales.indptr,
        "cols": sales.cols,
        "counts": sales.counts,
        **{name: getattr(fit, f"{name}_") for name in PER_PAIR},
        "left": fit.factors_.left,
        "right": fit.factors_.right,
    }
    if level is not None:
        arrays["level"] = _per_pair(level, sales, "level")
    if priced is not None:
        arrays["priced"] = _per_pair(priced.probability, sales, "priced probability")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = write_arrays(folder / ARRAYS, arrays)
        of_price = None if priced is None else {"form": priced.form, "calibration": priced.calibration}
        described = _described(fit) | {
            "priced": of_price,
            "arrays": {"file": ARRAYS, "sha256": file_hash(folder / ARRAYS), "names": names},
        }
        text = json.dumps(described | {"sha256": canonical_hash(described)}, indent=1, ensure_ascii=False)
        replace_file(folder / DESCRIPTION, text.encode())
    except OSError as error:
        raise EwError(
            f"the model cannot be written into {folder}: {error.strerror or error}.",
            "free some space or make the folder writeable, then run the week again.",
        ) from error
    return folder


def load_model(folder: Path, *, anomaly: AnomalyModel | None = None) -> SavedModel:
    """Read a model back. ``anomaly``: your own anomaly model, if it was fitted with one."""
    described = read_description(folder / DESCRIPTION)
    arrays = read_arrays(folder / ARRAYS, described)
    try:
        fit = _fit(described, arrays, anomaly)
        of_price = described.get("priced")  # absent in models of the first versions
        priced = None if of_price is None else PricedPairs(arrays["priced"], **of_price)
        versions = {str(name): str(version) for name, version in described["versions"].items()}
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        refuse(folder / DESCRIPTION, f"does not describe a model ({error})", error)
    return SavedModel(fit, arrays.get("level"), versions, str(described["sha256"]), priced)


def _described(fit: DetectorFit) -> dict[str, Any]:
    described = {
        "format": FORMAT,
        "week": fit.sales.week,
        "shape": list(fit.sales.shape),
        "pairs": fit.sales.n_observed,
        "theta": asdict(fit.theta_),
        "rank": fit.rank_,
        "noise": fit.noise_,
        "dispersion_size": fit.dispersion_size_,
        "anomaly": fit.anomaly_model.name,
        "anomaly_built_in": BUILT_IN.get(fit.anomaly_model.name) == fit.anomaly_model,
        "probability": fit.probability,
        "drop_fraction": fit.drop_fraction,
        "mode": fit.mode_,
        "mode_reason": fit.mode_reason_,
        "converged": fit.converged_,
        "null_gain": fit.null_gain_,
        "rank_curve": None if fit.rank_curve_ is None else asdict(fit.rank_curve_),
        "held_out_curve": None if fit.held_out_curve_ is None else asdict(fit.held_out_curve_),
        "rank_weights": {str(rank): weight for rank, weight in fit.rank_weights_.items()},
        "family_scores": dict(fit.family_scores_),
        "diagnostics": dict(fit.diagnostics_),
        "warnings": list(fit.warnings_),
        "versions": {"ew-pipeline": code_version(), **environment()},
    }
    plain: dict[str, Any] = _plain(described)
    return plain


def _fit(
    described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], anomaly: AnomalyModel | None
) -> DetectorFit:
    n, m = described["shape"]
    sales = SalesMatrix(
        indptr=arrays["indptr"],
        cols=arrays["cols"],
        counts=arrays["counts"],
        shape=(n, m),
        store_ids=arrays["store_ids"],
        sku_ids=arrays["sku_ids"],
        week=described["week"],
    )
    for name in (*PER_PAIR, *(name for name in ("level", "priced") if name in arrays)):
        if arrays[name].shape != sales.counts.shape:
            raise ValueError(f"{name} has shape {arrays[name].shape} for {sales.n_observed} pairs")
    theta = described["theta"]
    return DetectorFit(
        sales=sales,
        posterior_=arrays["posterior"],
        expected_sales_=arrays["expected_sales"],
        expected_cv_=arrays["expected_cv"],
        cavity_sales_=arrays["cavity_sales"],
        cavity_cv_=arrays["cavity_cv"],
        theta_=Theta(
            alpha=float(theta["alpha"]),
            anomaly_rate=float(theta["anomaly_rate"]),
            alpha_interval=_pair(theta["alpha_interval"]),
            anomaly_rate_interval=_pair(theta["anomaly_rate_interval"]),
            at_bound=theta["at_bound"],
            identified=theta["identified"],
            reason=theta["reason"],
        ),
        rank_=described["rank"],
        noise_=described["noise"],
        anomaly_=described["anomaly"],
        dispersion_size_=float(described["dispersion_size"]),
        mode_=described["mode"],
        mode_reason_=described["mode_reason"],
        converged_=described["converged"],
        factors_=LowRankFactors(arrays["left"], arrays["right"]),
        anomaly_model=_anomaly_model(described["anomaly"], described["anomaly_built_in"], anomaly),
        null_gain_=float(described["null_gain"]),
        rank_curve_=_curve(described["rank_curve"]),
        held_out_curve_=_curve(described["held_out_curve"]),
        rank_weights_={int(rank): float(weight) for rank, weight in described["rank_weights"].items()},
        family_scores_={name: float(score) for name, score in described["family_scores"].items()},
        diagnostics_={name: float(value) for name, value in described["diagnostics"].items()},
        warnings_=tuple(described["warnings"]),
        probability=described["probability"],
        drop_fraction=float(described["drop_fraction"]),
    )


@dataclass(frozen=True)
class NamedOnly:
    """Stands for a user's own anomaly model, of which a saved model knows the name and no more."""

    name: str
    alpha_bounds: tuple[float, float] = (0.0, 1.0)

    def log_pmf(self, counts: ArrayLike, rates: ArrayLike, alpha: float) -> Float:
        self._ask()

    def mean_factor(self, alpha: float) -> float:
        self._ask()

    def sample(self, rates: ArrayLike, alpha: float, rng: np.random.Generator) -> Any:
        self._ask()

    def _ask(self) -> NoReturn:
        raise UsageError(
            f"the anomaly model {self.name!r} is not one of ours, so the saved model holds its name only.",
            "pass it again: load_model(folder, anomaly=your_model).",
        )


def _anomaly_model(name: str, built_in: bool, given: AnomalyModel | None) -> AnomalyModel:
    if given is not None and given.name != name:
        raise UsageError(f"the model was fitted with the anomaly model {name!r}, not {given.name!r}.")
    if given is not None:
        return given
    return BUILT_IN[name] if built_in else NamedOnly(name)


def _per_pair(given: ArrayLike, sales: SalesMatrix, name: str) -> Float:
    values = np.asarray(given, dtype=np.float64)
    if values.shape != sales.counts.shape:
        raise UsageError(
            f"the {name} has shape {values.shape}; there are {sales.n_observed} observed pairs.",
            "pass one number per pair, in the order of the fit.",
        )
    return values


def _plain(value: Any) -> Any:
    """For JSON: tuples as lists, and what JSON has no number for as text that ``float`` reads."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def _pair(ends: Any) -> tuple[float, float]:
    low, high = ends
    return float(low), float(high)


def _curve(described: Mapping[str, Any] | None) -> RankCurve | None:
    if described is None:
        return None
    return RankCurve(
        ranks=tuple(described["ranks"]),
        scores=tuple(float(score) for score in described["scores"]),
        standard_errors=tuple(float(error) for error in described["standard_errors"]),
        best=described["best"],
        one_standard_error=described["one_standard_error"],
    )
