"""The best plan for a wish, beside the plans that others would make, each with its best parameters; and a verdict.

The best plan has the best shares of all groups that are worth trying. The paper's own has every entry report changes
through k-RR on all nodes of a hierarchy: layer i has nodes of c^i periods. One layer is the paper's disjoint continual
release (DCR), several are the hierarchical one (HDCR). All layers have the same odds, which is how the paper splits its
budget.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal, localcontext
from itertools import chain, islice
from typing import TypeAlias

import numpy as np
from changeling_protocol import (
    MICRO,
    Calendar,
    Constraint,
    ExpectedChanges,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    Track,
    track_cost,
)
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..estimate import Floats
from ..estimation.entries import expected_moments
from ..randomizers.naming import UNIT_LOSSES
from .candidates import TOGETHER, Candidate, Maker, best_state, closer_look, first_look, stretched
from .distance import Distance, distance_from_best
from .outages import PRICE, best_floor, divided, is_bridged, sure_tracks
from .prediction import ANY_CHANGE, Option, Span, Wish, odds_within, reports_that_tell
from .shares import (
    EXACT,
    GroupShares,
    ShareProblem,
    best_alone,
    even,
    optimal_shares,
    publishable_shares,
    rounded_shares,
)

ONE_THREAD = 1
"""The search is thousands of small dense systems. Several threads on each gain little, and wait ten times longer for
one another than they work wherever cores are shared."""
MOST_TIMES, FIRST_TIMES = 48, 8
"""At first the planner looks at so many times at most, among them the first FIRST_TIMES."""
ROUGH, FINE = 0.02, 0.006
"""The gaps at which the search ends, at first and at last."""
MOST_SEARCHED, LOOKED_AT = 400, 150
"""Over more periods than the first, the first look is at about as many as the second, each some of the calendar's."""
MOST_STRETCHED, FEWER_TIMES = 16, 16
"""The last look at a long calendar is at more forms of so many groups at most, and at so many times."""
MOST_HELD = 20_000_000
"""The last look is at as many forms as have so many figures together, those of the best groups: 160 megabytes."""
UNSURE, SINGLES = 0.1, 8
"""Where the search ends with a larger gap, as with few devices, or where errors are so near to none that rounding hides
which groups are better, so many that are best by themselves are tried as well."""
DEAREST = 1 + 2 * PRICE
"""A floor that raises the error by a larger factor is left out."""
FIRST_LOOK = 250
"""About how many groups a first look is at; only a bar of progress knows."""
Progress: TypeAlias = Callable[[float], None]
"""Is told what part of the work is done, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The best plan for a wish.

    wish: what it is for.
    option: the plan, how accurate it will be and what it asks of a device.
    kinds: the kind of each of its groups: panel, changes, hierarchy, mix or history.
    gap: by what part the variance that is predicted for the plan without its floor could fall at most, from 0 to 1,
    with any other shares of the groups that were considered and any linear unbiased estimator. It says how well the
    search among these groups ended, and nothing of other reports: that is `distance`.
    considered: how many groups there were.
    floor: the share of the devices that are in a group which is there to bridge lost periods; 0 if there is none.
    without: the standard error that the wish wants small, as it would be without that group.
    """

    wish: Wish
    option: Option
    kinds: tuple[str, ...]
    gap: float
    considered: int
    floor: float
    without: float

    @property
    def plan(self) -> ReleasePlan:
        """The release plan itself."""
        return self.option.plan

    @property
    def distance(self) -> Distance:
        """How far the plan is from the best of all reports that keep epsilon; takes seconds, each time."""
        return distance_from_best(self.wish, self.plan)

    def share_of(self, kind: str) -> float:
        """The share of the devices that are in groups of this kind."""
        groups = zip(self.plan.groups, self.kinds, strict=True)
        return sum(group.share for group, each in groups if each == kind) / self.plan.total_share


def optimal_plan(wish: Wish, progress: Progress | None = None) -> Planned:
    """The plan whose histograms are expected to be most accurate, at a cost of at most the wish's epsilon.

    What is made small is the variance that is predicted and printed, so that its bound bounds just that. progress: is
    told now and then what part of the work is done, from 0 to 1.
    Raises ValueError if the budget is too small to report anything, or if there are fewer devices than it takes for
    nodes to be published.

    >>> from changeling_protocol import AtMost, Calendar
    >>> wish = Wish(2, Calendar(0, 604_800, 8), AtMost(2), epsilon=4, devices=5000)  # a yes or no for eight weeks
    >>> optimal_plan(wish).gap < 0.01  # of its error at most so much could still be saved by such groups
    True
    """
    import scipy.linalg  # noqa: F401  # late, as it loads slowly; now, as only what is loaded is limited

    with threadpool_limits(ONE_THREAD):
        return _optimal_plan(wish, progress or (lambda _: None))


def _optimal_plan(wish: Wish, progress: Progress) -> Planned:
    if wish.devices < wish.minimum:
        raise ValueError(
            f"nodes with fewer than {wish.minimum} reports are not published, and there are {wish.devices} devices: "
            "ask more, or choose a smaller minimum"
        )
    problem, weights, start = _search(wish, progress)
    gap = FINE if wish.periods <= MOST_SEARCHED else ROUGH
    shares = optimal_shares(problem, weights, wish.objective, gap, start)
    progress(0.7)
    shares = publishable_shares(problem, shares, weights, wish.objective, gap)
    shares = _few_enough(problem, shares, weights, wish)
    integers = rounded_shares(problem, shares, weights, wish.objective)
    progress(0.8)
    option, kinds = _planned(wish, problem.candidates, integers.tolist())
    exact = option.error(wish) ** 2 * wish.devices < EXACT * float(problem.own.mean())
    if exact or _gap(wish, shares, option) > UNSURE:
        most = SINGLES if wish.periods <= MOST_SEARCHED else 1
        singles = best_alone(problem, weights, wish.objective, most).tolist()
        for at in (at for at in singles if problem.candidates[at].tracks <= wish.most_tracks):
            alone = (np.arange(len(integers)) == at).astype(np.int64)
            single = _planned(wish, problem.candidates, alone.tolist())
            if single[0].error(wish) < option.error(wish):
                (option, kinds), integers = single, alone
    chosen, considered = np.flatnonzero(integers), len(problem.candidates)
    problem, f = problem.restricted(chosen), integers[chosen] / integers.sum()  # the other groups take memory
    without, floor = option.error(wish), None
    gap = _gap(wish, shares, option)
    progress(0.9)
    if wish.bridge and not is_bridged(wish, sure_tracks(wish, *divided(problem.candidates, f))):
        few = _times(wish.periods)
        floor = best_floor(Maker(wish), problem.candidates, f, problem.looking_at(few[0]), few[1])
    if floor is not None:
        with_floor = _planned(wish, floor.groups, floor.shares)
        if with_floor[0].error(wish) <= DEAREST * without:  # where rounding hides errors, a price is not what it seems
            return Planned(wish, *with_floor, gap, considered, floor.share, without)
    return Planned(wish, option, kinds, gap, considered, 0.0, without)


def _gap(wish: Wish, shares: GroupShares, option: Option) -> float:
    return min(1.0, max(0.0, 1.0 - shares.bound / wish.devices / option.error(wish) ** 2))


def _few_enough(problem: ShareProblem, shares: GroupShares, weights: Floats, wish: Wish) -> GroupShares:
    """Good shares of groups that have, about all questions, no more tracks than a plan may have."""
    tracks = np.array([each.tracks for each in problem.candidates])
    while tracks[shares.f > 0].sum() > wish.most_tracks:
        used = np.flatnonzero(shares.f)
        kept = np.delete(used, (shares.f[used] / tracks[used]).argmin())
        rest = problem.restricted(kept)
        f = optimal_shares(rest, weights, wish.objective, ROUGH, shares.f[kept] / shares.f[kept].sum())
        whole = np.zeros(len(shares.f))
        whole[kept] = f.f
        shares = replace(shares, f=whole, error=f.error)
    return shares


def _search(wish: Wish, progress: Progress) -> tuple[ShareProblem, Floats, Floats | None]:
    """The candidates that are worth a last search, the weights of the times that it looks at, and where it begins.

    Over a long horizon the first look is at a calendar with wider periods, whose best groups are then stretched.
    """
    factor = -(-wish.periods // LOOKED_AT) if wish.periods > MOST_SEARCHED else 1
    looked = wish if factor == 1 else _wider(wish, factor)
    makers, few = _makers(looked), _times(looked.periods)
    first = _fitting(wish, chain.from_iterable(map(first_look, makers)))
    candidates = _gathered(first, progress, FIRST_LOOK * len(makers))
    problem = _problem(looked, candidates, few[0])
    shares = optimal_shares(problem, few[1], wish.objective, ROUGH)
    progress(0.4)
    used = [candidate for candidate, share in zip(candidates, shares.f.tolist(), strict=True) if share > 0]
    if factor > 1:
        slopes = problem.at(shares.f, few[1]).slopes
        best = np.lexsort((-slopes, -shares.f))[:MOST_STRETCHED]
        used = [candidates[i] for i in best.tolist()]
        few = _times(wish.periods)
        finer = (stretched(each, _about(used, each), factor) for each in _makers(wish))
        forms = islice(_fitting(wish, chain.from_iterable(finer)), MOST_HELD // wish.periods**2)
        return _problem(wish, list(forms), few[0]), few[1], None
    known = {candidate.group for candidate in candidates}
    closer = _fitting(wish, chain.from_iterable(closer_look(maker, _about(used, maker)) for maker in makers))
    candidates += [candidate for candidate in closer if candidate.group not in known]
    progress(0.5)
    start = np.append(shares.f, np.zeros(len(candidates) - len(shares.f)))
    return _problem(wish, candidates, np.arange(1, wish.periods + 1)), even(wish.periods), start


def _makers(wish: Wish) -> list[Maker]:
    """Makers of groups about one question, several, and all of a wish."""
    return [Maker(wish, about) for about in (*(some for some in TOGETHER if some < wish.questions), wish.questions)]


def _about(used: Iterable[Candidate], maker: Maker) -> list[Candidate]:
    return [each for each in used if each.about == maker.about]


def _fitting(wish: Wish, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """The candidates that leave a plan within its number of tracks, about all questions."""
    return (candidate for candidate in candidates if candidate.tracks <= wish.most_tracks)


def _gathered(candidates: Iterable[Candidate], progress: Progress, expected: int) -> list[Candidate]:
    gathered = []
    for candidate in candidates:
        gathered.append(candidate)
        progress(min(0.3, 0.3 * len(gathered) / expected))
    return gathered


def _wider(wish: Wish, factor: int) -> Wish:
    """The wish on a calendar whose periods are so many times as wide; the last few of the old ones are left out."""
    calendar, later = wish.calendar, 1 - (1 - wish.expected.later / MICRO) ** factor
    wider = Calendar(calendar.start, calendar.period * factor, calendar.periods // factor)
    return replace(wish, calendar=wider, expected=ExpectedChanges(wish.expected.first, round(MICRO * later)))


def _problem(wish: Wish, candidates: list[Candidate], times: NDArray[np.intp]) -> ShareProblem:
    if not candidates:
        raise ValueError(
            f"no plan tells every period within epsilon {wish.epsilon} and has {wish.minimum} reports on each node: "
            "raise epsilon, ask more devices or for fewer periods, or choose a smaller minimum"
        )
    moments = expected_moments(wish.answers, wish.expected, wish.periods)
    return ShareProblem(candidates, np.diagonal(moments.centred)[1:].copy(), wish.retrospective, times)


def _times(periods: int) -> tuple[NDArray[np.intp], Floats]:
    """The times that the search looks at, and how many of all times each stands for, as shares."""
    if periods <= MOST_TIMES:
        return np.arange(1, periods + 1), np.full(periods, 1.0 / periods)
    most = MOST_TIMES if periods <= MOST_SEARCHED else FEWER_TIMES
    later = np.linspace(FIRST_TIMES + 1, periods, most - FIRST_TIMES).round().astype(np.intp)
    times = np.unique(np.concatenate([np.arange(1, FIRST_TIMES + 1), later]))
    nearest = np.abs(np.arange(1, periods + 1)[:, None] - times).argmin(1)
    return times, np.bincount(nearest, minlength=len(times)) / periods


def _planned(wish: Wish, groups: Sequence[Candidate], shares: Sequence[int]) -> tuple[Option, tuple[str, ...]]:
    """The plan of these groups with these shares but for those that have none, and their kinds, the largest first."""
    order = sorted((i for i, share in enumerate(shares) if share), key=lambda i: -shares[i])
    made = [(group, groups[i].kind) for i in order for group in groups[i].groups(shares[i], wish.questions)]
    plan = ReleasePlan(tuple(group for group, _ in made))
    return Option.of(wish, "optimal", plan), tuple(kind for _, kind in made)


BRANCHINGS = (2, 3, 4, 8)
MOST_PANEL_REPORTS = 16
"""The most reports of a panel."""


def _references(wish: Wish) -> Iterator[tuple[str, Option]]:
    """The plans that others would make, by their name of PLANS, each with its best parameters.

    Those that the budget or the horizon has no room for are left out, and those that leave a period without a node
    that is published.
    """
    shapes, most_reports = list(_shapes(wish)), min(MOST_PANEL_REPORTS, wish.periods)
    tried: dict[str, tuple[str, list[tuple[str, ReleasePlan | None]]]] = {
        "paper": ("paper HDCR", [(f"c={c} h={h}", _paper(wish, c, h)) for c, h in shapes]),
        "flat": ("flat DCR", [("", _paper(wish, 1, 1))]),
        "sampled": ("sampled hierarchy", [(f"c={c} h={h}", _sampled(wish, c, h)) for c, h in shapes]),
        "panel": ("panel", [(f"r={reports}", _panel(wish, reports)) for reports in range(1, most_reports + 1)]),
    }
    for name, (title, plans) in tried.items():
        options = [Option.of(wish, title, plan, detail) for detail, plan in plans if plan is not None]
        options = [option for option in options if np.isfinite(option.error(wish))]
        if options:
            yield name, min(options, key=lambda option: option.error(wish))


def _shapes(wish: Wish) -> Iterator[tuple[int, int]]:
    for branching in BRANCHINGS:
        layers = 2
        while branching ** (layers - 1) <= wish.periods:
            yield branching, layers
            layers += 1


def _paper(wish: Wish, branching: int, layers: int) -> ReleasePlan | None:
    """A plan like `hierarchical_plan`; a closed cohort is charged as one, which leaves more for every report."""
    spans = [Span(branching**i, 0, wish.periods) for i in range(layers)]
    odds = odds_within(wish.epsilon, sum((reports_that_tell(wish, span, UNIT_LOSSES) for span in spans), Decimal(0)))
    if odds is None:
        return None
    response = KaryResponse(MutationSpace(wish.answers), odds)
    return ReleasePlan((Group(tuple(span.track(response) for span in spans)),))


def _sampled(wish: Wish, branching: int, layers: int) -> ReleasePlan | None:
    groups = []
    for span in (Span(branching**i, 0, wish.periods) for i in range(layers)):
        odds = odds_within(wish.epsilon, reports_that_tell(wish, span, UNIT_LOSSES))
        if odds is None:
            return None
        groups.append(Group((span.track(KaryResponse(MutationSpace(wish.answers), odds)),)))
    return ReleasePlan(tuple(groups))


def _panel(wish: Wish, reports: int) -> ReleasePlan | None:
    offer = best_state(wish.answers, not wish.closed, wish.epsilon, reports)
    if offer is None:
        return None
    return ReleasePlan((Group((Span(1, 0, wish.periods, reports).track(offer),)),))


PLANS = ("paper", "flat", "sampled", "panel", "optimal")
"""The names of plans on a command line, in the order of the table."""
DONE = {
    "panel": "report their state now and then",
    "changes": "report changes",
    "hierarchy": "report changes on several widths",
    "mix": "report their state now and then, and changes between",
    "history": "report their whole history, or any possible one",
}
"""The work of the devices in each kind of group."""
WHY = {
    "panel": "for this horizon and budget a few states tell more than many changes do",
    "changes": "answers change seldom, and that one did not is told with little noise",
    "hierarchy": "over so many periods noise adds up, and wide nodes keep it down",
    "history": "the budget is near the logarithm of the number of possible histories",
    "mix": "the budget has room for both, and changes carry the states from one report to the next",
}
"""Why most devices of a plan are in groups of a kind."""
LEAST_NAMED = 0.005
"""Kinds of groups with a smaller share are not named."""
ABOUT_AS_GOOD = 1.02
"""A plan that needs fewer than so many times the devices is about as good."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Plans for one wish, side by side.

    wish: what they are for.
    planned: the optimal plan, and how sure it is that it is.
    options: the plans by PLANS, as far as the budget and the horizon have room for them.
    """

    wish: Wish
    options: dict[str, Option]
    planned: Planned

    def choose(self, name: str) -> Option:
        """The plan of this name. Raises ValueError, which lists the names, if it is not among the options."""
        if name not in self.options:
            raise ValueError(f"no plan {name!r} for this wish: choose one of {', '.join(self.options)}")
        return self.options[name]

    @property
    def verdict(self) -> str:
        """Says in words what the optimal plan is made of, and how many devices it saves."""
        words = f"The optimal plan: {plan_in_words(self.planned)}."
        errors = {option.title: option.error(self.wish) for name, option in self.options.items() if name != "optimal"}
        if not errors:
            return words
        rival = min(errors, key=lambda title: errors[title])
        gained = (errors[rival] / self.planned.option.error(self.wish)) ** 2
        if gained > ABOUT_AS_GOOD:
            return f"{words} It needs {gained:.3g} times fewer devices than {rival}, the best of the others."
        return f"{words} Nothing is gained over {rival}, which is simpler."


def compare_plans(wish: Wish, progress: Progress | None = None) -> Comparison:
    """The optimal plan for a wish beside the paper's hierarchy, a flat release, a sampled hierarchy and a panel.

    progress: as for `optimal_plan`, which most of the time is spent on.
    Raises ValueError if the budget is too small to report anything.
    """
    with threadpool_limits(ONE_THREAD):
        planned = optimal_plan(wish, progress)
        return Comparison(wish, {**dict(_references(wish)), "optimal": planned.option}, planned)


def plan_in_words(planned: Planned) -> str:
    """Describes what the devices of a plan do, and why."""
    shares = sorted(((planned.share_of(kind), kind) for kind in set(planned.kinds)), reverse=True)
    done = ", ".join(f"{share:.0%} of the devices {DONE[kind]}" for share, kind in shares if share >= LEAST_NAMED)
    return f"{done}: {WHY[shares[0][1]]}"


def hierarchical_plan(
    answers: int, calendar: Calendar, constraint: Constraint, *, epsilon: Decimal, branching: int = 2, layers: int = 1
) -> ReleasePlan:
    """The plan of a hierarchy with the largest odds that a budget allows.

        epsilon_0 = epsilon / Σ_i min(2 κ_i, N_i)

    answers: z.
    calendar, constraint: the survey's.
    epsilon: the most that an entry may lose in all, in nats.
    branching: c, at least 2 if there are several layers.
    layers: how many, at least 1.
    Raises ValueError for other numbers, for a layer without a node, or an epsilon that is too small or too large.
    """
    if layers < 1 or (layers > 1 and branching < 2):
        raise ValueError(f"a hierarchy has layers >= 1 and branching >= 2, got {layers} and {branching}")
    widest = branching ** (layers - 1)
    if widest > calendar.periods:
        raise ValueError(
            f"layer {layers} has nodes of {widest} periods and the calendar only {calendar.periods}: "
            "choose fewer layers"
        )
    tracks = [Track(branching**i, ANY_CHANGE, 0, calendar.periods) for i in range(layers)]
    with localcontext(prec=50, rounding=ROUND_FLOOR):
        loss = epsilon / sum(track_cost(track, calendar, constraint, losses=UNIT_LOSSES) for track in tracks)
    response = KaryResponse(MutationSpace(answers), Odds.within(loss))
    return ReleasePlan((Group(tuple(replace(track, randomizer=response) for track in tracks)),))
