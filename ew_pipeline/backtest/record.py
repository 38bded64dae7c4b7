"""The record itself, priced: P(wrong) from a hidden state that is followed over the weeks."""

from __future__ import annotations

from dataclasses import dataclass

from ew_pipeline.backtest.policies import Score
from ew_pipeline.backtest.view import PastView
from ew_pipeline.infer.follow import Followed, follow, infer
from ew_pipeline.infer.parameters import Fit, fit_parameters

EARLY_FITS = (0, 1, 2, 3, 4, 6, 8, 10)
FIT_EVERY = 4  # weeks, from the twelfth on


@dataclass(frozen=True)
class Record:
    """P(the record is wrong), label-free; with a truth that has a threshold, P(that much was lost or more).

    Parameters are fitted at fixed weeks, at first often, then every fourth, on what was known at their end;
    the pass over the weeks goes on from the week scored before. Neither depends on which weeks are scored.
    """

    name: str = "record"

    def score(self, view: PastView) -> Score:
        fitted_at = fit_week(view.t)
        fit = view.memory.get(self.name, fitted_at, Fit)
        if fit is None:
            fit = view.memory.keep(self.name, fitted_at, fit_parameters(view.panel.until(fitted_at)))
        past = self._past(view, fitted_at, fit)
        beliefs = infer(view.panel, past, fit.parameters, view.threshold or 0.0)
        if view.threshold is None:
            return Score(beliefs.wrong)
        return Score(beliefs.deep, (beliefs.deep + 1e-3 * beliefs.wrong) / (1.0 + 1e-3))

    def _past(self, view: PastView, fitted_at: int, fit: Fit) -> Followed:
        """The pass at the end of the week before, from the nearest that is remembered."""
        kind = f"{self.name} followed, parameters of week {fitted_at}"
        nearest = None
        for week in range(view.t, 0, -1):
            nearest = view.memory.get(kind, week, Followed)
            if nearest is not None:
                break
        if view.t == 0:
            return follow(view.panel, fit.parameters, until=-1)
        if nearest is None or nearest.weeks < view.t:
            nearest = follow(view.panel, fit.parameters, nearest, view.t - 1)
            view.memory.keep(kind, view.t, nearest)
        return nearest


def fit_week(t: int) -> int:
    """The week at whose end the parameters for week ``t`` are fitted."""
    early = [week for week in EARLY_FITS if week <= t]
    return early[-1] if t < EARLY_FITS[-1] + 2 else t - t % FIT_EVERY
