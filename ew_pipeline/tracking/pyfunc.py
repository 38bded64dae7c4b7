"""The saved model behind MLflow's pyfunc interface.

MLflow finds ``_load_pyfunc`` by the name of this module, which stands in the model's MLmodel file, and
hands it the model's folder: what is stored is data alone, and the code is that of the installed package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from ew_pipeline.tracking.model import SavedModel, load_model


class DetectorModel:
    """``mlflow.pyfunc.load_model("models:/ew-detector@champion").predict(frame)``."""

    def __init__(self, model: SavedModel) -> None:
        self.model = model

    def predict(self, frame: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        return self.model.predict(frame)


def _load_pyfunc(path: str) -> DetectorModel:
    return DetectorModel(load_model(Path(path)))
