"""Pictures as inline SVG that follow the page: its font, its colours, light or dark.

matplotlib draws with stand-in colours, which are then replaced by the page's CSS variables. Texts stay texts:
small, sharp, searchable and in the page's own font. matplotlib is slow to load and writes to the home folder
when it is, so it is imported when a picture is drawn.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ew_pipeline.core.arrays import Float, Int64

if TYPE_CHECKING:
    from matplotlib.axes import Axes


INK, MUTED, GRID, PAPER = "#010203", "#010204", "#010205", "#010206"
ACCENT, FLAG = "#010207", "#010208"
SERIES = ("#010211", "#010212", "#010213", "#010214", "#010215")
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    PAPER: "--card",
    ACCENT: "--accent",
    FLAG: "--flag",
    **{colour: f"--series-{place}" for place, colour in enumerate(SERIES, start=1)},
}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a store may be called "$1"
    "font.size": 9.5,
    "text.color": INK,
    "axes.facecolor": "none",
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
}
WIDTH = 5.0  # inches at 72 dots: about a phone's width, so that texts are not scaled down there


@dataclass(frozen=True)
class Plot:
    """A picture with its title and what it shows, for those who cannot see it."""

    name: str
    title: str
    description: str
    svg: str


@dataclass(frozen=True, eq=False)
class CalibrationTable:
    """Predicted against realised share of anomalies, one row per bin that is not empty, by ascending
    prediction."""

    mean_predicted: Float
    realised_share: Float
    count: Int64

    @property
    def largest_gap(self) -> float:
        """The largest |predicted - realised| over the bins."""
        return float(np.max(np.abs(self.mean_predicted - self.realised_share)))


def load_matplotlib() -> None:
    """Import what draws: half a second, which a run may spend while it waits for others."""
    import matplotlib.backends.backend_svg
    import matplotlib.figure  # noqa: F401


def draw(
    name: str,
    title: str,
    description: str,
    height: float,
    paint: Callable[[list[Axes]], None],
    panels: int = 1,
) -> Plot:
    """Let ``paint`` fill ``panels`` axes below each other, and keep them as one SVG element."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained", facecolor="none")
        FigureCanvasSVG(figure)
        paint(list(figure.subplots(panels, 1, squeeze=False, sharex=panels > 1)[:, 0]))
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return Plot(name, title, description, _inline(buffer.getvalue(), name, title, description))


def _inline(document: str, name: str, title: str, description: str) -> str:
    svg = document[document.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    view = re.search(r'viewBox="[^"]+"', svg)
    assert view is not None
    opening = (
        f'<svg class="plot" {view[0]} role="img" aria-labelledby="{name}-title {name}-words">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-words">{escape(description)}</desc>'
    )
    body = svg[svg.index(">") + 1 :]
    body = re.sub(r"\s*\n\s*", "\n", body)
    body = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", body)
    for colour, variable in VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    # Ids are unique within a picture only; on the page there are several.
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    return opening + body.replace("xlink:href", "href")
