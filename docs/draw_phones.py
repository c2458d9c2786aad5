"""Draws docs/phones.svg, the first picture of the README: python docs/draw_phones.py.

Left: what eight phones hold and send, by the SDK's own code, on coins of fixed seeds. Right: what a simulated crowd of
such phones comes to, beside the truth.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
import numpy as np
from changeling_client.testing import FakeServer, ManualClock, let_report, make_client
from changeling_protocol import Survey
from changeling_simulations import Design, design
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

MONTHS, PHONES, DEVICES = 12, 8, 100_000
YES, NO, TRUTH, ESTIMATE = "#b9d4ea", "#f3ddc8", "#222222", "#0072B2"


def lives() -> NDArray[np.intp]:
    """What each phone holds in each month, 0 for yes and 1 for no: it changes its mind once at most."""
    generator = np.random.default_rng(7)
    moved = np.arange(MONTHS) >= generator.integers(1, 2 * MONTHS, (PHONES, 1))
    held: NDArray[np.intp] = generator.integers(0, 2, (PHONES, 1)) ^ moved
    return held


def sent(survey: Survey, held: NDArray[np.intp], seed: int) -> list[tuple[int, str]]:
    """The months that a phone reports on, and what it says."""
    clock = ManualClock(survey.calendar.start + 1)
    server = FakeServer(clock)
    with TemporaryDirectory() as folder, make_client(folder, server, seed=seed) as client:
        handle = client.join(server.publish(survey), answers=[survey.answers[held[0]]])
        for month in range(MONTHS):
            if month and held[month] != held[month - 1]:
                handle.record(survey.answers[held[month]])
            let_report(client, clock, days=28)
        let_report(client, clock, days=7)
    return [(report.node.end, report.says) for report in server.reports]


def draw_phones(axes: Axes, wished: Design) -> None:
    """The phones, a row each: what it holds as its colour, what it sends as dots."""
    for phone, held in enumerate(lives()):
        for month, answer in enumerate(held):
            axes.barh(phone, 1, left=month, height=0.8, color=(YES, NO)[answer], linewidth=0)
        for month, said in sent(wished.survey, held, seed=phone + 1):
            face = TRUTH if said == "yes" else "white"
            axes.plot(month - 0.5, phone, "o", ms=6, mfc=face, mec=TRUTH, mew=1)
    axes.set(title="Eight phones: what they hold, and what they send", xlim=(0, MONTHS), yticks=[], xlabel="month")
    axes.title.set_fontsize(10)
    kinds = [("s", YES, YES, "holds yes"), ("s", NO, NO, "holds no"), ("o", TRUTH, TRUTH, "says yes")]
    for marker, face, edge, label in [*kinds, ("o", "white", TRUTH, "says no")]:
        axes.plot([], [], marker, mfc=face, mec=edge, label=label)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=4, frameon=False, fontsize=8, columnspacing=1)


def draw_crowd(axes: Axes, wished: Design) -> None:
    """The share of one answer over time: published with its band, and the truth."""
    run = wished.simulate(changes=0.8, seed=3)
    months, shares = np.arange(1, MONTHS + 1), 100 * run.estimated_shares[:, 0]
    axes.fill_between(months, *100 * run.share_intervals[:, 0].T, color=ESTIMATE, alpha=0.2, lw=0, label="95% interval")
    axes.plot(months, 100 * run.true_shares[:, 0], color=TRUTH, lw=1.5, label="truth, which nobody knows")
    axes.plot(months, shares, "o-", color=ESTIMATE, ms=3, lw=1, label="published")
    axes.set(title=f"{DEVICES:,} phones: percent who say yes", xlabel="month", ylim=(0, 100), xlim=(0.5, MONTHS + 0.5))
    axes.title.set_fontsize(10)
    axes.legend(frameon=False, fontsize=8)


def draw() -> Figure:
    """Both side by side."""
    wished = design(
        "Do you use feature X?",
        ["yes", "no"],
        every="4w",
        periods=MONTHS,
        at_most=3,
        epsilon=2,
        devices=DEVICES,
        closed=True,
    )
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_phones(left, wished)
    draw_crowd(right, wished)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    return figure


if __name__ == "__main__":
    matplotlib.rcParams["svg.hashsalt"] = "phones"
    draw().savefig(Path(__file__).parent / "phones.svg", metadata={"Date": None})
