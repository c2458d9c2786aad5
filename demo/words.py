"""What the demo says in sentences."""

from collections import defaultdict
from decimal import Decimal

import numpy as np
from changeling_protocol import Group, Survey
from changeling_simulations import Experiment


def introduction(people: int, epsilon: Decimal) -> str:
    """Who takes part, and what is promised to them."""
    return (
        f"{people} young people in Northern Ireland, July 1993 to June 1999: at school, in training, at work, or not. "
        "Each has a client and a store of its own. Every step is the product's: planned and signed survey, sealed "
        "uploads over HTTP, log, fold, estimates.\n"
        f"[bold]ε = {epsilon} for the whole survey[/]: whatever somebody did in six years, all that their device ever "
        f"sends is at most e^{epsilon} times likelier than if they had done anything else.\n"
    )


def plan_in_words(survey: Survey, seconds: float) -> str:
    """What the planner chose for the survey: which share of the devices reports what, groups of one shape together."""
    shapes: dict[str, list[int]] = defaultdict(list)
    for group in survey.plan.groups:
        shapes[_reports(group)].append(group.share)
    lines = [
        f"  {sum(shares) / survey.plan.total_share:4.0%}  {reports}" + f" ({len(shares)} groups)" * (len(shares) > 1)
        for reports, shares in sorted(shapes.items(), key=lambda shape: -sum(shape[1]))
    ]
    return "\n".join(
        [f"The planner took {seconds:.0f} s. A device draws once what it reports, and that is:", *lines, ""]
    )


def coverage(published: Experiment) -> str:
    """How far the estimates are off, and how often the bands hold the truth."""
    inside = np.abs(published.estimates - published.truth) <= 2 * published.standard_errors
    return (
        f"[bold]Standard error {100 * _mean_error(published):.1f} points[/] on average; the estimates are off by "
        f"{100 * published.rms_error:.1f}. The bands hold the truth in {inside.sum()} of {inside.size} figures. "
        "That is some 95 in 100 with many entries; with so few, less often for answers that hardly anybody gives.\n"
    )


def beside_the_paper(paper: Experiment) -> str:
    """What differs between the two plans, and that no devices are asked any more."""
    return (
        f"The paper gives each of an entry's {paper.reports_an_entry:.0f} reports a slice of ε. Above, all that an "
        "entry says is drawn together, on one budget. Both are sampled here without devices: of the same histories, "
        "and of a billion drawn from them.\n"
    )


def without_protection(people: int, epsilon: Decimal) -> str:
    """What it would take without joint responses and a planner."""
    return (
        f"To say as much of {people} entries, the paper's plan would need a total ε of about {epsilon}, which protects "
        "nobody."
    )


def _mean_error(published: Experiment) -> float:
    """The root mean square of the standard errors, as a fraction of the entries."""
    return float(np.sqrt(np.nanmean(published.standard_errors**2))) / published.entries


def _reports(group: Group) -> str:
    """What an entry of a group reports."""
    states = sum(track.reports for track in group.tracks if not track.reports_changes)
    parts = [f"its state at {states} of the quarters' ends"] if states else []
    for track in group.tracks:
        if track.reports_changes:
            span = "a quarter" if track.width == 1 else f"{track.width} quarters"
            drawn = "" if track.reported is None else f", drawn from {track.count}"
            parts.append(f"its changes over {track.reports} spans of {span}{drawn}")
    return " and ".join(parts) + (", all on one budget" if group.joint else "")
