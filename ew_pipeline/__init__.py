"""ew_pipeline: find inventory records that are wrong."""

from importlib import import_module
from typing import TYPE_CHECKING

from ew_pipeline._version import __version__

if TYPE_CHECKING:
    from ew_pipeline.method.costs import Costs
    from ew_pipeline.method.detector import EntrywiseDetector
    from ew_pipeline.method.sales_matrix import SalesMatrix

__all__ = ["Costs", "EntrywiseDetector", "SalesMatrix", "__version__"]

# Loaded at first use, so that `ew --help` and anything else that only needs the package's name does
# not wait for numba and scipy.
_HOMES = {
    "Costs": "ew_pipeline.method.costs",
    "EntrywiseDetector": "ew_pipeline.method.detector",
    "SalesMatrix": "ew_pipeline.method.sales_matrix",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
