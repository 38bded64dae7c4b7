"""Simulated retail chains over many weeks with known truth: ``simulate_chain`` and ``simulate_shelves``.

Neither is a model of any retailer. ``shelves`` follows goods and records from day to day (see there). In
``simulate_chain`` expected sales of a week are low-rank::

    M_t = diag(store effects of week t) · base · diag(SKU effects of week t)
    base_ij = size_i · popularity_j · (affinity[format_i, department_j] + sum_k a_ik b_jk)

so its rank is at most min(formats, departments) + latent factors. Season, holidays, promotions, launches
and weather are effects of one axis and leave the rank alone. Units are negative binomial around M_t; a
phantom-inventory event takes part of a pair's sales from a day of a week until it is repaired.

Every random draw belongs to a stream and a week of its own: changing a setting from week w on leaves the
weeks before w as they were, and leaves alone what the setting does not govern.
"""

from ew_pipeline.simulate.chain import SimulatedChain, simulate_chain
from ew_pipeline.simulate.settings import ChainSettings, Schedule, StoreFormat
from ew_pipeline.simulate.shelf_settings import ShelfSettings
from ew_pipeline.simulate.shelves import ShelfChain, Shelves, simulate_shelves

__all__ = [
    "ChainSettings",
    "Schedule",
    "ShelfChain",
    "ShelfSettings",
    "Shelves",
    "SimulatedChain",
    "StoreFormat",
    "simulate_chain",
    "simulate_shelves",
]
