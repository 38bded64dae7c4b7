"""`ew reproduce page`: the studies kept in a folder, as one page of Markdown with its pictures next to it.

Each study's sentences are made from its figures: nothing is written that was not measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ew_pipeline.core.console import emit_json, results
from ew_pipeline.core.errors import UsageError
from ew_pipeline.studies.experiments import printed
from ew_pipeline.studies.experiments.auc import CLOSE
from ew_pipeline.studies.experiments.report import KeptReport, Table, kept_reports

Figures = Mapping[str, Any]
RIVALS = ("drmf", "stable-pcp", "rmc")
DEFAULT_PLACE = Path("infra/docs/experiments.md")
HEAD = """\
<!-- Made by `ew reproduce page`; run it again rather than edit this page. -->
# The paper's experiments, measured

The experiments of section 4 of Farias, Li and Peng, *Fixing Inventory Inaccuracies At Scale*, on fresh data,
with every method on the same instances and what the paper prints beside them. Regret is cost per pair above
that of the ideal policy pi\\*, which knows expected sales and theta; its costs are uniform on [0, 10].
Under each study stand the command, the version of the code and the day. All of it again: `make experiments`.
"""


def table1(figures: Figures) -> list[str]:
    methods = figures["methods"]
    ours = methods.get("default")
    if ours is None:
        return []
    count, size, ignore = ours["instances"], figures["size"], methods.get("ignore")
    told = "" if ignore is None else f" Flagging nothing costs {ignore['regret']:.3f}."
    lines = [
        f"On {count} fresh instances of the paper's ensemble ({size} stores, {size} SKUs), the default loses "
        f"{ours['regret']:.4f} ± {_se(ours)} per pair to the policy that knows everything, "
        f"{ours['regret_worst']:.3f} at worst, and is told nothing but the sales.{told}"
    ]
    oracle, practical = methods.get("paper-oracle"), methods.get("paper-practical")
    if oracle and practical:
        lines.append(
            f"The paper prints {printed.TABLE_1[0].regret:.2f} for its method. With the true rank, and "
            f"scored with the true theta as the authors' code does, we find {oracle['regret']:.3f}; without "
            f"that knowledge {practical['regret']:.3f}."
        )
    tuned = [name for name in RIVALS if name in methods]
    if tuned:
        found = ", ".join(f"{name} {methods[name]['regret']:.3f}" for name in tuned)
        shown = ", ".join(f"{row.regret:.2f}" for row in printed.TABLE_1[1:])
        lines.append(
            f"The published rivals, tuned with more than anybody can know, reach {found}; the paper prints "
            f"{shown}."
        )
        below = [f"{name}-one-sided" for name in tuned if f"{name}-one-sided" in methods]
        if below:
            found = ", ".join(f"{name} {methods[name]['regret']:.3f}" for name in below)
            lines.append(f"Told also that lost sales lie below expectation, they reach {found}.")
    return lines


def regret(figures: Figures) -> list[str]:
    sizes = figures["sizes"]
    points = ", ".join(f"{s['regret']:.4f} at n = {name}" for name, s in sizes.items())
    slope = figures["slope"]
    steep = "" if slope is None else f" The slope of log regret on log n is {slope:.2f}; the bound has −1/2."
    return [f"Regret falls as the chain grows, {points}.{steep}"]


def auc(figures: Figures) -> list[str]:
    methods = figures["ensemble"]
    ours = methods.get("default")
    if ours is None:
        return []
    lines = [
        f"As a ranking, the default lies {ours['gap']:.4f} below the ideal policy's AUC on average and "
        f"{ours['gap_worst']:.3f} at worst, within {CLOSE:g} of it on {ours['close_to_ideal']:.0%} of "
        "instances."
    ]
    rivals = [name for name in RIVALS if methods.get(name, {}).get("below_default") is not None]
    if rivals:
        shares = ", ".join(f"{name} {methods[name]['below_default']:.0%}" for name in rivals)
        lines.append(f"Instances on which it ranks better than the published rivals: {shares}.")
    return lines


def limits(figures: Figures) -> list[str]:
    lines = []
    for each in figures["limits"]:
        if each["method"] != figures["limits"][0]["method"]:
            continue
        clear = [c for c in each["contrasts"] if c["reading"] in ("higher", "lower")]
        words = ", ".join(f"{c['reading']} {c['parameter']}" for c in clear) or "nothing that is clear"
        lines.append(
            f"By {each['measure']}, the worst fifth of the {each['method']}'s instances holds "
            f"{each['share']:.0%} of all that is lost. It has {words}."
        )
    claims = [(name, way) for name, way in printed.LIMIT_CLAIMS.items() if way in ("higher", "lower")]
    said = ", ".join(f"{way} {name}" for name, way in claims)
    return [*lines, f"The paper finds {said}, and a surprising dependence on the mean demand."]


def table2(figures: Figures) -> list[str]:
    methods = figures["methods"]
    best = min(methods, key=lambda name: float(methods[name]["ratio"]))
    paper = {name: cost / printed.TABLE_2["Ignore"][0] for name, (cost, _) in printed.TABLE_2.items()}
    lines = [
        f"{figures['pairs']} pairs of week {figures['week']}, {figures['anomalies']} of them anomalies by "
        f"the paper's label; {figures['instances']} draws of the costs. Cheapest: {best}, at "
        f"{methods[best]['ratio']:.3f} of what doing nothing costs."
    ]
    practical, drmf = methods.get("paper-practical"), methods.get("drmf")
    if practical and drmf:
        lines.append(
            f"The paper prints {paper['EW']:.2f} of Ignore for EW and {paper['DRMF']:.2f} for DRMF on its "
            f"own data; here its method costs {practical['ratio']:.2f} of Ignore, and DRMF "
            f"{drmf['ratio']:.2f}."
        )
    return lines


def robustness(figures: Figures) -> list[str]:
    cases = figures["cases"]
    worse = [name for name, case in cases.items() if case["above_ignore"] > 0]
    lost = (
        f"on average it costs more only in {', '.join(worse)}" if worse else "on average it never costs more"
    )
    return [f"Data that break the model's assumptions, {len(cases)} cases. Against doing nothing, {lost}."]


def _se(summary: Mapping[str, Any]) -> str:
    return "–" if summary["regret_se"] is None else f"{summary['regret_se']:.4f}"


# In the order of the page: the study, its heading, its sentences.
SECTIONS: Mapping[str, tuple[str, Callable[[Figures], list[str]]]] = {
    "table1": ("Cost and error of every method (Table 1)", table1),
    "regret": ("Regret as the chain grows", regret),
    "auc": ("Detection as a classification task", auc),
    "limits": ("Where most is lost", limits),
    "robustness": ("Data that are not what the model assumes", robustness),
    "table2": ("Real sales (Table 2)", table2),
}


def page(
    out: Annotated[Path, typer.Option(file_okay=False, help="The folder that the studies were given.")],
    to: Annotated[Path, typer.Option(dir_okay=False, help="Where the page goes.")] = DEFAULT_PLACE,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Write a page on the studies that were run with --out.

    A study that was not run is named on the page. Nothing is fitted.
    """
    kept = {name: report for name, report in kept_reports(out).items() if name in SECTIONS}
    if not kept:
        raise UsageError(f"{out} holds no study.", f"run one first: ew reproduce table1 --out {out}")
    to.parent.mkdir(parents=True, exist_ok=True)
    pictures = {name: _copied(report, to) for name, report in kept.items()}
    to.write_text(markdown(kept, pictures), encoding="utf-8")
    missing = [name for name in SECTIONS if name not in kept]
    if json:
        emit_json({"page": str(to), "studies": list(kept), "missing": missing})
        return
    results().print(f"{to}: {', '.join(kept)}", soft_wrap=True)
    if missing:
        results().print(f"not run: {', '.join(missing)}", soft_wrap=True)


def markdown(kept: dict[str, KeptReport], pictures: dict[str, str | None]) -> str:
    """The whole page; ``pictures`` are paths from the page."""
    parts = [HEAD]
    for name, (heading, sentences) in SECTIONS.items():
        if name not in kept:
            continue
        report, picture = kept[name], pictures.get(name)
        parts.append(f"## {heading}\n")
        parts += [_escaped(line) + "\n" for line in sentences(report.figures)]
        if picture is not None:
            parts.append(f"![{heading}]({picture})\n")
        parts += [_table(table) for table in report.tables]
        if report.differences:
            parts.append("What differs from the paper:\n")
            parts.append("".join(f"- {_escaped(line)}\n" for line in report.differences))
        made = report.made
        parts.append(f"Made on {made.day} by version {made.code} with `{made.command}`.\n")
    missing = [name for name in SECTIONS if name not in kept]
    if missing:
        commands = ", ".join(f"`ew reproduce {name}`" for name in missing)
        parts.append(f"Not run for this page: {commands}.\n")
    return "\n".join(parts)


def _copied(report: KeptReport, to: Path) -> str | None:
    if report.picture is None:
        return None
    name = f"{to.stem}-{report.experiment}.png"
    shutil.copyfile(report.picture, to.parent / name)
    return name


def _table(table: Table) -> str:
    head = "| " + " | ".join(_cell(name) for name in table.head) + " |"
    rule = "|---|" + "---:|" * (len(table.head) - 1)
    rows = ["| " + " | ".join(_cell(value) for value in row) + " |" for row in table.rows]
    return "\n".join([f"{_escaped(table.title)}:\n", head, rule, *rows, ""])


def _cell(text: str) -> str:
    return _escaped(text).replace("|", "\\|")


def _escaped(text: str) -> str:
    """pi* and M* are no emphasis."""
    return text.replace("*", "\\*")
