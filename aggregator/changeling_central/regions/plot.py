"""A picture of privacy regions: what tests of the output must err, and the lines (ε_i, δ_i) that bound it.

Imports matplotlib only when a picture is asked for.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..colours import COLOURS
from .region import PrivacyRegion, TangentLine

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 6
"""Of one region so many tangent lines are drawn, the steepest."""


def save_region_plot(regions: Mapping[str, PrivacyRegion], path: Path | str, title: str = "Privacy regions") -> None:
    """Draw regions, each under its name, to a file of the kind that the path's suffix names.

    ValueError for no regions; without matplotlib too, naming the extra that brings it.
    """
    draw_regions(regions, title).savefig(path, dpi=150)


def draw_regions(regions: Mapping[str, PrivacyRegion], title: str) -> "Figure":
    """Each region filled, by name; of a lone one also its tangent lines, each with its (ε_i, δ_i)."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("a plot needs matplotlib: pip install 'changeling[central]'") from error

    if not regions:
        raise ValueError("there are no regions to draw")
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.subplots()
    for number, (name, region) in enumerate(regions.items()):
        colour = COLOURS[number % len(COLOURS)]
        alarms, missed = zip(*((float(f), float(m)) for f, m in region.vertices), strict=True)
        axes.fill(alarms, missed, facecolor=colour, alpha=0.12, lw=0)
        axes.fill(alarms, missed, facecolor="none", edgecolor=colour, lw=1.5, label=name)
    if len(regions) == 1:
        _draw_lines(axes, next(iter(regions.values())), COLOURS[1:])
    axes.plot((0, 1), (1, 0), color="#999999", lw=0.8, ls=":")
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    axes.set_xlabel("false alarms")
    axes.set_ylabel("missed detections")
    axes.grid(alpha=0.25, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, fontsize=11, loc="left")
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    return figure


def _draw_lines(axes: "Axes", region: PrivacyRegion, colours: Sequence[str]) -> None:
    """From the false alarms' axis to the missed detections'; labelled in the steep half, mirrored without a label."""
    for number, corner in enumerate(region.corners[:MOST_LINES]):
        colour = colours[number % len(colours)]
        label = f"ε = {float(corner.epsilon):.3g}, δ = {float(corner.delta):.3g}"
        for line in region.lines:
            if line.delta == corner.delta and max(line.alarm, line.missed) == corner.ratio:
                axes.plot(*_ends(line), color=colour, lw=0.9, ls="--", label=label)
                label = "_mirrored"


def _ends(line: TangentLine) -> tuple[tuple[float, float], tuple[float, float]]:
    reach = float(1 - line.delta)
    return (0.0, reach / float(line.alarm)), (reach / float(line.missed), 0.0)
