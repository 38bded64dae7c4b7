"""What we promise of the figures, as data: one row, one bound.

``measure`` names a figure of the experiment's summary; a bound is an upper one unless ``low`` is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Requirement:
    """low <= figure <= high."""

    measure: str
    words: str
    high: float
    low: float | None = None
    aim: float | None = None
    case: str = ""

    @property
    def bound(self) -> str:
        return f"<= {self.high:g}" if self.low is None else f"{self.low:g} .. {self.high:g}"


@dataclass(frozen=True)
class Verdict:
    """A requirement beside what was measured. ``met`` is None when there is nothing to judge."""

    requirement: Requirement
    value: float | None
    met: bool | None

    @property
    def mark(self) -> str:
        return {True: "pass", False: "FAIL", None: "–"}[self.met]

    def plain(self) -> dict[str, Any]:
        """As values that JSON can hold."""
        return {**asdict(self.requirement), "value": self.value, "met": self.met}


def judge(requirements: Sequence[Requirement], figures: Mapping[str, float | None]) -> list[Verdict]:
    """Hold ``figures`` of one case against its requirements."""
    verdicts = []
    for requirement in requirements:
        value = figures[requirement.measure]
        met = None
        if value is not None:
            met = value <= requirement.high and (requirement.low is None or value >= requirement.low)
        verdicts.append(Verdict(requirement, value, met))
    return verdicts


TABLE_1 = (
    Requirement("regret", "mean regret", 0.030, aim=0.024),
    Requirement("regret_p95", "95th percentile of regret", 0.09),
    Requirement("regret_worst", "worst regret", 0.25),
    Requirement("error_frobenius", "‖M − M*‖F", 125.0),
    Requirement("error_max", "‖M − M*‖max", 17.0),
    Requirement("auc_gap", "AUC gap to the ideal policy", 0.017),
    Requirement("rate_bias", "bias of p_A", 0.01, low=-0.01),
    Requirement("rate_rmse", "RMSE of p_A", 0.035),
    Requirement("alpha_rmse", "RMSE of alpha", 0.18),
    Requirement("cpu_mean", "CPU seconds per fit", 4.0, aim=1.0),
    Requirement("rate_coverage", "coverage of the 90% interval of p_A", 0.95, low=0.85),
    Requirement("alpha_coverage", "coverage of the 90% interval of alpha", 0.95, low=0.85),
    Requirement("plug_in_fpr", "Algorithm 2, z = 0: mean FPR / gamma", 1.07),
    Requirement("exceeded", "Algorithm 2, z = 1: share with FPR > gamma", 0.05),
    Requirement("tpr_loss", "Algorithm 2, z = 1: TPR below that of pi*(gamma)", 0.06),
    Requirement("calibration_gap", "largest calibration gap over deciles", 0.05),
)
VARIATIONAL = (Requirement("cpu_mean", "CPU seconds per fit, variational", 1.0, aim=0.3),)

REGRET = (
    Requirement("slope", "slope of log regret on log n", -0.9),
    Requirement("regret_at_100", "mean regret at n = 100", 0.005),
)

NEVER_WORSE = 0.02
ROBUSTNESS = (
    Requirement("above_ignore", "cost − Ignore", -0.03, case="sparse-.05"),
    Requirement("above_ignore_worst", "worst cost − Ignore", NEVER_WORSE, case="sparse-.05"),
    Requirement("above_ignore", "cost − Ignore", -0.04, case="sparse-.1"),
    Requirement("above_ignore_worst", "worst cost − Ignore", NEVER_WORSE, case="sparse-.1"),
    Requirement("above_ignore", "cost − Ignore", -0.06, case="wide-30x300"),
    Requirement("above_ignore_worst", "worst cost − Ignore", NEVER_WORSE, case="wide-30x300"),
    Requirement("above_ignore", "cost − Ignore", -0.04, case="nb-2"),
    Requirement("above_ignore_worst", "worst cost − Ignore", NEVER_WORSE, case="nb-2"),
    Requirement("regret", "regret", 0.03, case="nb-5"),
    Requirement("regret", "regret", 0.025, case="thinning"),
    Requirement("regret", "regret", 0.025, case="zero"),
    Requirement("regret", "regret", 0.025, case="uniform-onset"),
    Requirement("regret", "regret", 0.045, case="blocks-missing"),
    Requirement("regret", "regret", 0.09, aim=0.0, case="stores-out"),
    Requirement("regret", "regret", 0.09, aim=0.0, case="skus-out"),
    Requirement("flagged", "flagged share", 0.003, case="null-poisson"),
    Requirement("flagged", "flagged share", 0.01, case="null-nb-5"),
    Requirement("flagged_worst", "largest flagged share", 0.02, case="null-nb-5"),
    Requirement("flagged", "flagged share", 0.01, case="null-nb-20"),
)

CHAIN = (
    Requirement("against_cross", "cost / Ignore of both, less cross-section alone", 0.0),
    Requirement("against_rule", "… less the trailing rule alone", 0.0),
    Requirement("against_tuned_rule", "… less the trailing rule tuned in hindsight", 0.0),
    Requirement("against_ignore", "… less flagging nothing", 0.0),
)
