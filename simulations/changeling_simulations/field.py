"""A survey in the field: who comes late, leaves, comes back as another, is offline, or is not heard; and its tallies.

All rates are per period. Nothing here depends on answers, but for `reluctance`, and the invented entries that push one.

Tallies are drawn entry by entry. A device that is not heard has drawn its response all the same: what it used up of a
joint group's slots is used up. Symbols are drawn by how many entries have the same input, as in the sampler.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from changeling_protocol import Group, Node, Randomizer, Survey, closings
from changeling_statistics import Attendance, Counts, GroupClosing, NodeTally, PlanNode, Tallies, counterpart_of
from numpy.typing import NDArray

from .population import Population, States, inputs_of, weighted_counts
from .sampler import Entries, Flags, Numbers, Respondents, check_fits, full_attendance, in_order


@dataclass(frozen=True, slots=True)
class Field:
    """How a population's devices fare; as it stands, all enrol before the first period ends and are always heard.

    arrivals: how many enrol in each period after the first, as a share of all who enrolled before; 0.03 is growth by
    3% a period. What an arrival held before it enrolled, nobody asks: it begins with the answer that it has then.
    uninstalls: the chance to leave for good in a period, after an entry's first.
    reinstalls: the chance, likewise, to leave and come back at once as a new entry, which draws everything afresh. In a
    closed cohort nobody can come back.
    offline: the chance that an entry's closing is never heard.
    spell: how many periods a spell offline lasts, mean; None if each period has an independent chance.
    late: the chance that what is heard of a closing arrives only after the next period has closed, but within grace.
    outage: the periods whose closings the server loses, all of them; one that starts late is an outage from 0 on.
    in_order: whether entries enrol in the order of the population's histories, so that newcomers may be unlike those
    before them; if not, at random.
    reluctance: of each state 0..z the chance that an entry which holds it as a period closes is not heard; none if
    empty.
    behind: the chance that an entry's clock is a period behind: each of its changes is reported a period late.
    liars: how many entries are invented, as a share of the true ones; they enrol first, are always heard, and answer
    at random, or with what raises the answer `pushed` most: its state 1..z, 0 for none.
    Raises ValueError, by name, for a rate that is not within 0 to 1, and for a spell that is too short.

    >>> Field(offline=0.1, spell=2).returning
    0.5
    """

    arrivals: float = 0
    uninstalls: float = 0
    reinstalls: float = 0
    offline: float = 0
    spell: float | None = None
    late: float = 0
    outage: Node | None = None
    in_order: bool = False
    reluctance: tuple[float, ...] = ()
    behind: float = 0
    liars: float = 0
    pushed: int = 0

    def __post_init__(self) -> None:
        for name in ("arrivals", "uninstalls", "reinstalls", "offline", "late", "behind", "liars"):
            _check_rate(name, getattr(self, name))
        for rate in self.reluctance:
            _check_rate("reluctance", rate)
        if self.offline == 1:
            raise ValueError("offline must be below 1: somebody has to be heard")
        if self.spell is not None and not self.spell >= max(1, self.offline / (1 - self.offline)):
            raise ValueError(
                f"spells must last one period or longer, and the longer the more are offline: {self.spell:g} periods "
                f"are too few for offline = {self.offline:g}"
            )

    @property
    def falling_silent(self) -> float:
        """The chance that an entry which is online goes offline with the next period."""
        return self.offline / (1 - self.offline) * self.returning

    @property
    def returning(self) -> float:
        """The chance that an entry which is offline is back with the next period."""
        return 1 - self.offline if self.spell is None else 1 / self.spell

    def is_out(self, period: int) -> bool:
        """True if the server loses this period's closing."""
        return self.outage is not None and self.outage.start < period <= self.outage.end


def _check_rate(name: str, rate: float) -> None:
    if not 0 <= rate <= 1:
        raise ValueError(f"{name} must be a rate from 0 to 1, got {rate:g}")


MOST_ENTRIES = 2_000_000
"""A simulation of the field goes through every entry at every closing."""


@dataclass(frozen=True, slots=True, eq=False)
class FieldEntries:
    """Entries one by one; who reinstalls is two. All of shape (entries,).

    history: which of the population's histories each has.
    enrolled: how many periods had closed when it enrolled: it answers from the next on, and knows nothing of before.
    left: the last period whose closing it answers; it may be the last before it enrolled.
    """

    history: Numbers
    enrolled: Counts
    left: Counts

    def __len__(self) -> int:
        return len(self.history)

    def __getitem__(self, some: Numbers) -> "FieldEntries":
        """Some of them."""
        return FieldEntries(self.history[some], self.enrolled[some], self.left[some])

    def states(self, population: Population, period: int) -> NDArray[np.intp]:
        """The state that each reports to hold as a period closes: NULL until it has enrolled."""
        held = population.frozen[:, period][self.history].astype(np.intp)
        states: NDArray[np.intp] = np.where(self.enrolled < period, held, 0)
        return states

    def answer(self, period: int) -> NDArray[np.bool_]:
        """Mask of the entries that answer the closing of a period."""
        answering: NDArray[np.bool_] = (self.enrolled < period) & (period <= self.left)
        return answering


def draw_entries(population: Population, survey: Survey, field: Field, generator: np.random.Generator) -> FieldEntries:
    """Draws when entries enrol, leave and come back as others.

    population: whose entries they are; of the same answers, and as many periods as the survey.
    generator: draws everything.
    Raises ValueError for more than MOST_ENTRIES entries, or arrivals in a closed cohort.
    """
    if population.entries > MOST_ENTRIES:
        raise ValueError(
            f"a simulation of the field has at most {MOST_ENTRIES:,} entries, got {population.entries:,}: choose fewer"
        )
    if survey.closed and field.arrivals:
        raise ValueError("a closed cohort takes no arrivals after its first period")
    periods = population.periods
    history = np.repeat(np.arange(len(population.weights)), population.weights)
    enrolled = draw_enrolments(len(history), periods, field.arrivals, generator)
    enrolled = np.sort(enrolled) if field.in_order else enrolled
    left = np.minimum(enrolled + _periods_before(field.uninstalls, len(history), generator), periods)
    rounds = []
    while len(history):
        replaced = enrolled + _periods_before(field.reinstalls, len(history), generator)
        rounds.append(FieldEntries(history, enrolled, np.minimum(left, replaced)))
        again = replaced < left
        history, enrolled, left = history[again], replaced[again], left[again]
        if survey.closed:
            break
    return FieldEntries(
        *(np.concatenate([getattr(each, name) for each in rounds]) for name in ("history", "enrolled", "left"))
    )


def draw_enrolments(entries: int, periods: int, arrivals: float, generator: np.random.Generator) -> Counts:
    """Draws how many periods have closed when each entry enrols, 0 to T - 1, shape (entries,).

    periods: T. arrivals: how many enrol in a period, as a share of those who enrolled before. The shares that have
    enrolled by the first, second, … period are as 1 : 1 + a : (1 + a)² …
    """
    by_then = (1 + arrivals) ** np.arange(1.0 - periods, 1)
    enrolled: Counts = np.searchsorted(by_then, generator.random(entries), side="right")
    return np.minimum(enrolled, periods - 1)


def enrolled_histogram(states: States, answers: int, entries: FieldEntries) -> Counts:
    """The histograms of all that have enrolled before a period closes, whether they are heard or not.

    states: of each history at the times 0..T, shape (rows, T + 1). answers: z.
    Returns for the times 0..T how many are in each state, NULL first, shape (T + 1, z + 1).
    """
    rows, times = states.shape
    held, come = np.zeros((times, answers + 1), np.int64), np.zeros(rows, np.int64)
    by_enrolment = np.bincount(entries.enrolled * rows + entries.history, minlength=times * rows).reshape(times, rows)
    for time in range(1, times):
        come += by_enrolment[time - 1]
        held[time] = weighted_counts(states[:, time], come, answers + 1)
    return held


def _periods_before(rate: float, entries: int, generator: np.random.Generator) -> Counts:
    """In how many periods from its enrolment on something befalls an entry that has this chance in each but the first:
    the number of those before. So many that it never happens if the rate is 0."""
    if rate == 0:
        return np.full(entries, np.iinfo(np.int32).max, np.int64)
    return generator.geometric(rate, entries)


@dataclass(frozen=True, slots=True, eq=False)
class AttendedClosing:
    """One closing of a survey's plan. Of shape (entries,), but for the period.

    period: that closes.
    answering: whether an entry has enrolled before, and not left yet.
    heard: whether the server hears of its closing. late: whether it is heard only after the next period has closed.
    new: whether it is the first closing since the entry enrolled.
    missed: whether there were closings before since then, and none of them was heard, nor will be.
    known: whether this closing of the entry or one before it is heard.
    """

    period: int
    answering: Flags
    heard: Flags
    late: Flags
    new: Flags
    missed: Flags
    known: Flags

    @property
    def on_time(self) -> Flags:
        """Mask of those heard before the next period has closed."""
        return self.heard & ~self.late


def attended_closings(
    population: Population, survey: Survey, field: Field, entries: FieldEntries, generator: np.random.Generator
) -> Iterator[AttendedClosing]:
    """Draws who is heard at each closing of a survey's plan, one closing after another.

    population, survey: of the same answers and periods. entries: of the population. generator: draws everything.
    """
    at_closings = set(closings(survey.plan, 0, survey.calendar.periods))
    offline = generator.random(len(entries)) < field.offline
    known, before = np.zeros(len(entries), np.bool_), 0
    for period in range(1, survey.calendar.periods + 1):
        if field.offline and period > 1:
            drawn = generator.random(len(entries))
            offline = np.where(offline, drawn >= field.returning, drawn < field.falling_silent)
        if period not in at_closings:
            continue
        answering = entries.answer(period)
        heard = answering & ~offline & (not field.is_out(period))
        if field.reluctance:
            chances = np.array(field.reluctance)[entries.states(population, period)]
            heard &= generator.random(len(entries)) >= chances
        late = heard & (generator.random(len(entries)) < field.late) if field.late else np.zeros_like(heard)
        new = entries.enrolled >= before
        missed = ~new & ~known
        known = known | heard
        yield AttendedClosing(period, answering, heard, late, new, missed, known)
        before = period


@dataclass(frozen=True, slots=True, eq=False)
class FieldTallies:
    """A survey in the field: what a server knows of it, and what is true.

    survey: whose tallies they are.
    on_time: of what arrived before the next period closed. late: of what arrived after that.
    truth: for the times 0..T how many of all that have enrolled by then are in each state, NULL first, whether they
    are heard or not; shape (T + 1, z + 1). frozen: the same of their frozen histories, which they report on.
    known: at each closing, of frozen histories, how many of those that are heard of by then, or will be late, are in
    each state, NULL first; shape (z + 1,).

    >>> from changeling_simulations import closed_cohort, design
    >>> population = closed_cohort(1000, 2, periods=4, most_changes=1, generator=np.random.default_rng(1))
    >>> survey = design("?", population.answers, periods=4, closed=True).survey
    >>> drawn = sample_field(population, survey, Field(uninstalls=0.5), np.random.default_rng(2))
    >>> bool(drawn.truth[4].sum() == drawn.known[4].sum() == 1000)
    True
    """

    survey: Survey
    on_time: Tallies
    late: Tallies
    truth: Counts
    frozen: Counts
    known: Mapping[int, Counts]

    @property
    def tallies(self) -> Tallies:
        """The tallies once everything has arrived."""
        return self.on_time + self.late

    def known_at(self, period: int) -> Tallies:
        """The tallies as they are when a period has just closed: of what is late, that of the periods before it."""
        late = _closings_until(self.survey, self.late, period - 1)
        return _closings_until(self.survey, self.on_time, period) + late


def sample_field(population: Population, survey: Survey, field: Field, generator: np.random.Generator) -> FieldTallies:
    """Draws the tallies of a survey whose entries fare as a field says.

    population: of the same answers, in the same order, and as many periods as the survey.
    generator: draws everything. Raises ValueError if the two do not fit, or for a field that does not fit the survey.

    >>> from changeling_simulations import closed_cohort, design
    >>> population = closed_cohort(1000, 2, periods=4, most_changes=1, generator=np.random.default_rng(1))
    >>> survey = design("?", population.answers, periods=4, closed=True).survey
    >>> sample_field(population, survey, Field(), np.random.default_rng(2)).known[4].sum().item()
    1000
    """
    check_fits(population, survey)
    if len(field.reluctance) not in (0, len(survey.answers) + 1):
        raise ValueError(f"reluctance is a rate for each of {len(survey.answers) + 1} states, got {field.reluctance}")
    population, reported = _with_clocks(population, field.behind, generator)
    entries = draw_entries(population, survey, field, generator)
    known: dict[int, Counts] = {}

    def counted() -> Iterator[AttendedClosing]:
        for closing in attended_closings(population, survey, field, entries, generator):
            states = entries.states(population, closing.period)[closing.known]
            known[closing.period] = np.bincount(states, minlength=len(survey.answers) + 1)
            yield closing

    on_time, late = respond(reported, survey, entries, counted(), generator)
    if field.liars:
        on_time += invented_tallies(survey, round(field.liars * population.entries), field.pushed, generator)
    truth, frozen = (
        enrolled_histogram(states, len(survey.answers), entries) for states in (population.true, population.frozen)
    )
    return FieldTallies(survey, on_time, late, truth, frozen, known)


def respond(
    population: Population,
    survey: Survey,
    entries: FieldEntries,
    attended: Iterable[AttendedClosing],
    generator: np.random.Generator,
) -> tuple[Tallies, Tallies]:
    """Draws what entries say at the closings of a survey's plan: the tallies of what is on time, and of what is late.

    population: whose frozen histories are reported, row by row. attended: all closings, in order.
    """
    plan = survey.plan
    upper = np.cumsum([group.share for group in plan.groups])
    drawn = np.searchsorted(upper, generator.integers(plan.total_share, size=len(entries)), side="right")
    groups = []
    for number, group in enumerate(plan.groups):
        members = np.flatnonzero(drawn == number)
        everybody = Entries.of(np.ones(len(members), np.int64))
        groups.append((number, members, Respondents(group, everybody, generator, indistinct=False)))
    nodes: tuple[dict[PlanNode, NodeTally], ...] = ({}, {})
    attendance: tuple[dict[GroupClosing, Attendance], ...] = ({}, {})
    for closing in attended:
        arrived = [(part, some) for part, some in enumerate((closing.on_time, closing.late)) if some.any()]
        for part, some in arrived:
            attendance[part].update(_attendance(closing, some, drawn))
        for number, members, respondents in groups:
            mine, answering = entries[members], closing.answering[members]
            heard = [some[members] for _, some in arrived]
            for place, (track_number, track) in enumerate(plan.numbered(number)):
                if (at := track.ending_at(closing.period)) is None:
                    continue
                node = track.node(at)
                inputs = inputs_of(track, mine.states(population, node.start), mine.states(population, node.end))
                tallies = respondents.close(place, at, inputs, answering, *heard)
                for (part, _), tally in zip(arrived, tallies, strict=True):
                    if tally.reports:
                        nodes[part][track_number, at] = tally
    return Tallies(nodes[0], attendance[0]), Tallies(nodes[1], attendance[1])


def _with_clocks(
    population: Population, behind: float, generator: np.random.Generator
) -> tuple[Population, Population]:
    """A population whose rows tell apart whose clock is a period behind; and what its entries report, row by row.

    Who is behind reports the first answer on time, as joining asks for it, and each change a period late.
    """
    if not behind:
        return population, replace(population, frozen=np.asfortranarray(population.frozen))  # read time by time
    slow = generator.binomial(population.weights, behind)
    late = np.hstack([population.frozen[:, :2], population.frozen[:, 1:-1]])
    told_apart = Population(
        population.answers,
        np.vstack([population.true, population.true]),
        np.vstack([population.frozen, population.frozen]),
        np.concatenate([population.weights - slow, slow]),
    )
    return told_apart, replace(told_apart, frozen=np.asfortranarray(np.vstack([population.frozen, late])))


def _attendance(closing: AttendedClosing, heard: Flags, group: NDArray[np.intp]) -> dict[GroupClosing, Attendance]:
    """The attendance at a closing of those that are heard, by group; of groups of which somebody is.

    group: the number of each entry's group, shape (entries,).
    """
    standings = (heard, heard & closing.new, heard & closing.missed)
    counts = np.array([np.bincount(group[among], minlength=int(group.max(initial=0)) + 1) for among in standings])
    return {
        (number, closing.period): Attendance(*of_group)
        for number, of_group in enumerate(counts.T.tolist())
        if of_group[0]
    }


def _closings_until(survey: Survey, tallies: Tallies, period: int) -> Tallies:
    """The tallies of closings up to a period."""
    tracks = survey.plan.tracks
    return Tallies(
        {at: tally for at, tally in tallies.nodes.items() if tracks[at[0]].node(at[1]).end <= period},
        {at: attendance for at, attendance in tallies.attendance.items() if at[1] <= period},
    )


MOST_TRIED = 4096
"""Of a larger alphabet so many symbols are drawn, of which an attacker takes the best."""


def invented_tallies(survey: Survey, liars: int, pushed: int, generator: np.random.Generator) -> Tallies:
    """Draws the tallies of invented entries, which enrol before the first closing and report on all that they can.

    liars: how many. pushed: the state 1..z whose answer their symbols raise most; 0 for symbols at random.
    Raises ValueError for a state that is none of the survey's.

    >>> from decimal import Decimal
    >>> from changeling_protocol import AtMost, Calendar
    >>> from changeling_simulations import paper_survey
    >>> survey = paper_survey(("tea", "milk"), Calendar(0, "1d", 4), AtMost(2), epsilon=Decimal(20))
    >>> lies = invented_tallies(survey, 5, 1, np.random.default_rng(1))
    >>> {tally.reports for tally in lies.nodes.values()}
    {5}
    """
    if not 0 <= pushed <= len(survey.answers):
        raise ValueError(f"there is no answer {pushed} among {len(survey.answers)}")
    plan = survey.plan
    shares = np.array([each.share for each in plan.groups]) / plan.total_share
    members = generator.multinomial([liars], shares)
    nodes: dict[PlanNode, NodeTally] = {}
    for number in range(len(plan.groups)):
        tracks, answering = list(plan.numbered(number)), np.ones(1, np.bool_)
        best = [_raising(track.randomizer, pushed, generator) if pushed else None for _, track in tracks]
        plain = Group(tuple(track for _, track in tracks))
        respondents = Respondents(plain, Entries.of(members[:, number]), generator, indistinct=True)
        for place, at in in_order(plain):
            track_number, track = tracks[place]
            *_, reports = respondents.answer(place, at, np.zeros(1, np.intp), answering)
            count, told = sum(part.total for part in reports), best[place]
            symbols = (
                generator.integers(0, track.randomizer.symbols, count, np.uint64)
                if told is None
                else np.full(count, told, np.uint64)
            )
            if count:
                nodes[track_number, at] = counterpart_of(track.randomizer).tally(symbols)
    return Tallies(nodes, full_attendance(survey, members))


def _raising(randomizer: Randomizer, pushed: int, generator: np.random.Generator) -> np.uint64:
    """The symbol that raises an answer most: of all, or of so many that are drawn."""
    few = randomizer.symbols <= MOST_TRIED
    tried: NDArray[np.uint64] = (
        np.arange(randomizer.symbols, dtype=np.uint64)
        if few
        else generator.integers(0, randomizer.symbols, MOST_TRIED, np.uint64)
    )
    counterpart = counterpart_of(randomizer)
    raised = [
        counterpart.estimate(counterpart.tally(tried[at : at + 1])).values[pushed - 1] for at in range(len(tried))
    ]
    return np.uint64(tried[int(np.argmax(raised))])
