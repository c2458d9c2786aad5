"""Draws docs/joint.svg, the picture of docs/joint.md: python docs/draw_kernel.py."""

from fractions import Fraction
from itertools import product
from pathlib import Path

import matplotlib
from changeling_protocol import Joint, Kernel, Odds
from matplotlib.figure import Figure

AGREES = Fraction(1, 3)
KERNEL = Kernel(Joint(Odds(20, 1), 2, (1,), (3,)), (AGREES,))
PALE, STRONG, LINE = "#b8c4d6", "#2f5d9b", "#bb2233"


def draw() -> Figure:
    """Every pattern of three slots: how likely it is if slots agree independently, and under the kernel."""
    patterns = sorted(product((1, 0), repeat=3), key=sum)
    independent = [AGREES ** sum(x) * (1 - AGREES) ** (3 - sum(x)) for x in patterns]
    densities = [KERNEL.density([3], sum(x)) for x in patterns]
    joint = [p * density / KERNEL.density([0], 0) for p, density in zip(independent, densities, strict=True)]
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for shift, heights, colour, label in (
        (-0.2, independent, PALE, "slots agree independently: the base"),
        (0.2, joint, STRONG, "the kernel"),
    ):
        bars = axes.bar([at + shift for at in range(8)], [float(p) for p in heights], 0.38, color=colour, label=label)
        axes.bar_label(bars, [str(p) for p in heights], fontsize=7, padding=2)
    for at, (x, density) in enumerate(zip(patterns, densities, strict=True)):
        faces = [STRONG if agrees else "white" for agrees in x]
        axes.scatter([at - 0.2, at, at + 0.2], [-0.025] * 3, 45, faces, edgecolors=STRONG, clip_on=False)
        axes.text(at, -0.075, f"× {density}", ha="center", fontsize=9)
    axes.axvline(3.5, color=LINE, linestyle="--", linewidth=1)
    axes.text(3.55, 0.34, "two agree or more", color=LINE, fontsize=9)
    axes.set(ylim=(0, 0.36), xticks=[], ylabel="probability")
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


if __name__ == "__main__":
    matplotlib.rcParams |= {"svg.hashsalt": "joint", "svg.fonttype": "none"}
    draw().savefig(Path(__file__).parent / "joint.svg", metadata={"Date": None, "Creator": None})
