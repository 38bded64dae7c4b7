"""Which probability decides, and what it is the probability of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ew_pipeline.backtest.calibration import Calibration

HARD = ("trailing", "trailing-sku")  # rules that say yes or no
UNCALIBRATED = ("drop", "history", *HARD)


@dataclass(frozen=True)
class Chance:
    """What a priced probability is the probability of: its name in a table, and what that means."""

    name: str
    meaning: str


WRONG = Chance("P(wrong)", "the probability that the inventory record is wrong")
DROP = Chance(
    "P(drop)",
    "the probability that sales have fallen to half of the pair's own level or below, whatever the cause",
)


def chance(form: str, labels: str) -> Chance:
    """Only the mixture's posterior, and what store checks have taught, speak of the record itself."""
    told = labels == "checks" and form not in UNCALIBRATED
    return WRONG if form == "posterior" or told else DROP


@dataclass(frozen=True)
class Pricing:
    """Which probability is priced, and why.

    Attributes
    ----------
    asked : the setting.
    form : what is used: the detector's ``posterior`` or ``drop``, ``history`` (the drop against the weeks
        around by the pair's own past, no labels), or what a calibration chose (``many + history``, …).
    words : the same as a sentence.
    labels : what the calibration learnt from: pair, text, code or checks; "" without one.
    calibration : the record, also when it was learnt and refused; None when there was nothing to learn from.
    """

    asked: str = "posterior"
    form: str = "posterior"
    words: str = "the posterior of the week's fit is priced"
    labels: str = ""
    calibration: Calibration | None = None

    @property
    def chance(self) -> Chance:
        return chance(self.form, self.labels)

    @property
    def of_the_detector(self) -> bool:
        """Whether the week's own fit is priced, so that theta must be known."""
        return self.form in ("posterior", "drop")

    @property
    def calibrated(self) -> bool:
        return self.calibration is not None and self.calibration.accepted and not self.of_the_detector

    @property
    def as_asked(self) -> bool:
        """False when a form was asked for by name and could not be had."""
        wanted = {"auto": True, "calibrated": self.calibrated}
        return wanted.get(self.asked, self.form == self.asked)

    @property
    def version(self) -> str | None:
        """Of the calibration that the probability comes from."""
        return self.calibration.version if self.calibration is not None and not self.of_the_detector else None
