"""The models of a week, saved with the probability that decides."""

from __future__ import annotations

from collections.abc import Sequence

from ew_pipeline.core.arrays import Float
from ew_pipeline.expect.fit import FittedSegment
from ew_pipeline.infer.pricing import Pricing
from ew_pipeline.tracking.model import PricedPairs, save_model


def save_models(fitted: Sequence[FittedSegment], priced: Sequence[Float], pricing: Pricing) -> None:
    """Save every model in its folder, with the probability that is priced and what it comes from."""
    for one, probability in zip(fitted, priced, strict=True):
        pairs = PricedPairs(probability, pricing.form, pricing.version)
        own = pricing.of_the_detector
        assert one.record.model is not None  # only row blocks have none
        save_model(one.fit, one.record.model, level=one.given.level, priced=None if own else pairs)
