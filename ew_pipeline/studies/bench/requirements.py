"""What is required of each figure, and whether it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Figures = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Requirement:
    """One line of the table. ``seen`` is None where the peer or the step was not run, ``passed`` also where
    nothing is required."""

    what: str
    required: str
    seen: float | None
    unit: str
    passed: bool | None

    @property
    def words(self) -> str:
        return "not run" if self.seen is None else f"{self.seen:.3g}{self.unit}"


def at_least(what: str, seen: float | None, least: float, unit: str) -> Requirement:
    passed = None if seen is None else seen >= least
    return Requirement(what, f">= {least:g}{unit}", seen, unit, passed)


def at_most(what: str, seen: float | None, most: float, unit: str) -> Requirement:
    passed = None if seen is None else seen <= most
    return Requirement(what, f"<= {most:g}{unit}", seen, unit, passed)


def reported(what: str, seen: float | None, unit: str) -> Requirement:
    return Requirement(what, "", seen, unit, None)


def times_faster(found: Figures, ours: str, peer: str, key: str) -> float | None:
    """How many times the peer's seconds are ours."""
    if ours not in found or peer not in found:
        return None
    return float(found[peer][key]) / float(found[ours][key])


def of_fits(found: Figures) -> list[Requirement]:
    """The fits beside other libraries', in one run, in CPU and in wall time. The limit of ``fast`` is on CPU
    time: it was set on one core, and a part of what takes so little cannot be shared out."""
    extra = {name: figures["extra_gb"] for name, figures in found.items()}
    fixed = "ours: default, fixed rank"
    quick = times_faster(found, "ours: fast", "implicit ALS", "wall_s")
    return [
        *_faster(found, "ALS as cmfrec (rank, lambda, sweeps)", "ours: ALS as cmfrec", "cmfrec ALS", 4.0),
        _faster(found, "fast, sales to f, beside implicit", "ours: fast", "implicit ALS", 8.0)[0],
        reported("fast, sales to f, beside implicit, wall", quick, "x"),
        at_most("fast, memory beyond the sales", extra.get("ours: fast"), 0.5, " GB"),
        *_faster(found, "default at a fixed rank, beside implicit", fixed, "implicit ALS", 1.0),
        at_most("default at a fixed rank, memory beyond the sales", extra.get(fixed), 1.0, " GB"),
        *_faster(
            found, "default, automatic rank and noise, beside Spark ALS", "ours: default", "Spark ALS", 1.0
        ),
        *(
            at_most(
                f"default, error on {where} pairs over the best ALS",
                _error_over_best(found, f"{where}_error"),
                1.0,
                "",
            )
            for where in ("observed", "unobserved")
        ),
    ]


def _faster(found: Figures, what: str, ours: str, peer: str, least: float) -> list[Requirement]:
    return [
        at_least(f"{what}, {time}", times_faster(found, ours, peer, key), least, "x")
        for time, key in (("CPU", "cpu_s"), ("wall", "wall_s"))
    ]


def of_growth(grown: Mapping[str, float], largest: Mapping[str, Any]) -> list[Requirement]:
    """Exponents of CPU time in the number of observed pairs, and the memory of the largest size."""
    memory = at_most(f"memory of all at {largest['observed']:g} pairs", largest["peak_gb"], 16.0, " GB")
    return [
        *(at_most(f"growth of: {step}", exponent, 1.05, "") for step, exponent in grown.items()),
        memory,
    ]


def of_reading(read: Figures) -> list[Requirement]:
    """A long parquet file to the matrix."""
    faster = [
        at_least(
            f"long parquet to SalesMatrix, beside pandas, {time}",
            float(read["pandas"][key]) / float(read["ours"][key]),
            2.0,
            "x",
        )
        for time, key in (("CPU", "cpu_s"), ("wall", "wall_s"))
    ]
    return [*faster, at_most("long parquet to SalesMatrix, memory", read["ours"]["peak_gb"], 0.5, " GB")]


def _error_over_best(found: Figures, key: str) -> float | None:
    errors = [float(figures[key]) for name, figures in found.items() if "ALS" in name and figures[key]]
    ours = found.get("ours: default")
    return None if ours is None or not errors else float(ours[key]) / min(errors)
