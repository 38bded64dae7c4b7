"""The week without its past, as the paper has it: what it alone would flag, tracked beside what is published.

A quick tier, whatever the settings say, and the noise that the run has found: the comparison is worth a
second opinion, not the time of the run itself.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pandas as pd

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.decide.flags import decide
from ew_pipeline.expect.fit import FittedSegment, make_detector
from ew_pipeline.infer.theta import pool_theta
from ew_pipeline.intake.assemble import Prepared
from ew_pipeline.results import CrossSection

MOST_VARIATIONAL = 20_000  # pairs; beyond, the large tier does as well in a tenth of the time
MOST_PAIRS = 500_000  # beyond, the second fit takes longer than the rest of the run


def cross_section(
    prepared: Prepared, fitted: tuple[FittedSegment, ...], scores: pd.DataFrame, config: RunConfig
) -> CrossSection | None:
    """None when it is switched off, when the run itself has no past, or the week is too large or too thin.

    ``scores``: the decision it is compared with.
    """
    started = time.perf_counter()
    has_past = (
        any(segment.level is not None for segment in prepared.segments) or prepared.past.panel is not None
    )
    if not config.cross_section or not has_past or prepared.coverage.pairs_observed > MOST_PAIRS:
        return None
    alone: list[FittedSegment] = []
    try:
        for one in fitted:
            known = config.detector.model_copy(update={"noise": one.record.noise})
            mode = "variational" if one.given.sales.n_observed <= MOST_VARIATIONAL else "large"
            fit = make_detector(config.model_copy(update={"detector": known}), mode).fit(one.given.sales)
            alone.append(
                FittedSegment(replace(one.given, level=None), fit, replace(one.record, theta=fit.theta_))
            )
    except EwError:
        return None  # too little in a segment for a fit of its own; what is published does not depend on it
    plain = config.model_copy(update={"random_check_share": 0.0})
    decided = decide(alone, [one.fit.posterior_ for one in alone], prepared.week, plain)
    flagged = decided["flagged"].to_numpy(dtype=bool)
    saving = float(decided.loc[flagged, "expected_saving"].sum())
    ignoring = float((decided["anomaly_probability"] * decided["cost_missed"]).sum())
    return CrossSection(
        theta=pool_theta([one.fit.theta_ for one in alone]),
        scored=len(decided),
        flags=int(flagged.sum()),
        both=int((flagged & scores["flagged"].to_numpy(dtype=bool)).sum()),
        expected_cost=ignoring - saving,
        expected_saving=saving,
        seconds=time.perf_counter() - started,
    )
