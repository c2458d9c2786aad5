"""Release plans: which nodes are reported, through which randomizer, by whom; and the symbol for each node.

A plan is a set of groups; an entry draws one group, once, and reports on all tracks of that group. The paper's
hierarchy is one group of nested change tracks; a panel is a group with a state track.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, NewType, TypeAlias

from .calendar import Calendar, Node
from .histories import History, HistoryKernel, HistoryState, PossibleHistories
from .joint import MOST_JOINT_BITS, MOST_STEPS, Joint, Kernel, agreeing
from .randomizers.interface import Coins, Odds, Randomizer, randomizer_as_fields, randomizer_from_fields
from .signing import Fields

TrackNumber = NewType("TrackNumber", int)
"""A track's number in its release plan, from 0 on through all groups."""

NodeNumber = NewType("NodeNumber", int)
"""A node's number in its track, from 1 on."""

MOST_TRACKS = 2**10
"""The most tracks of a plan: what a survey costs is worked out track by track on every device that joins."""
MOST_NODES = 2**18
"""The most nodes of a plan, of all tracks together: a device that was offline goes through those that closed meanwhile.
A hierarchy over 131,072 periods has no more."""
MOST_DRAWN_NODES = 2**14
"""The most nodes that one entry draws, on all tracks of its group: a device draws and keeps them when it joins."""
_ANY_ODDS = [2, 1]
"""A stand-in for the odds of a joint track, which the bytes leave out, until the group has worked them out."""
_EVEN = Odds(1, 1)
"""Favours nothing: the symbol comes from the base."""


@dataclass(frozen=True, slots=True)
class Track:
    """A cadence of nodes of `width` periods inside the periods (first, last], and its randomizer.

    reported: how many of the nodes an entry reports, drawn at random once; None for all of them.
    question: the place of the question that it is about, among those of the survey.
    """

    width: int
    randomizer: Randomizer
    first: int
    last: int
    reported: int | None = None
    question: int = 0

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"a track's nodes must be at least one period wide, got {self.width}")
        if not 0 <= self.first < self.last:
            raise ValueError(f"a track must lie inside (first, last], got ({self.first}, {self.last}]")
        if self.count < 1:
            raise ValueError(f"no node of width {self.width} fits into ({self.first}, {self.last}]")
        if self.reported is not None and not 1 <= self.reported <= self.count:
            raise ValueError(f"an entry can report 1 to {self.count} nodes of this track, got {self.reported}")

    @property
    def count(self) -> int:
        """How many nodes the track has."""
        return (self.last - self.first) // self.width

    @property
    def reports(self) -> int:
        """N: how many nodes of the track one entry reports."""
        return self.count if self.reported is None else self.reported

    @property
    def reports_changes(self) -> bool:
        """True if a report is about the change over a node, False if it is about the state at its end."""
        return self.randomizer.space.reports_changes

    def nodes(self) -> list[Node]:
        """All its nodes, in order: those that lie whole in (first, last]."""
        ends = range(self.first + self.width, self.last + 1, self.width)
        return [Node(end - self.width, end) for end in ends]

    def node_numbers(self) -> list[NodeNumber]:
        """The numbers of all its nodes, rising."""
        return [NodeNumber(number) for number in range(1, self.count + 1)]

    def node(self, number: NodeNumber) -> Node:
        """The node with this number, from 1 on. Raises ValueError where the track has none."""
        if not 1 <= number <= self.count:
            raise ValueError(f"the track's nodes are numbered 1 to {self.count}, got {number}")
        end = self.first + number * self.width
        return Node(end - self.width, end)

    def ending_at(self, period: int) -> NodeNumber | None:
        """The number of the node that ends with this period; None where no node of the track does."""
        number, rest = divmod(period - self.first, self.width)
        return NodeNumber(number) if rest == 0 and 1 <= number <= self.count else None

    def bounds(self, calendar: Calendar) -> range:
        """The N+1 times, in Unix seconds, that bound the track's nodes."""
        first, width = calendar.time(self.first), self.width * calendar.period
        return range(first, first + self.count * width + 1, width)


@dataclass(frozen=True)
class Group:
    """Tracks that the same entries report.

    share: a positive integer; an entry draws the group with probability share / (sum of all groups' shares).
    joint: how the reports of all tracks hang together: as slots that agree, or as a history; None if each is drawn by
    itself, with a budget of its own.
    In a joint group each track's randomizer has the law of one of its reports by itself, which `jointly` works out, and
    `of_history` with the tracks.
    hidden: tracks about other questions, in the view that `about` gives of one; else none. Their slots come after those
    of `tracks`, and whoever does not look at them is right to count them as unused.
    """

    tracks: tuple[Track, ...]
    share: int = 1
    joint: Joint | History | None = None
    hidden: tuple[Track, ...] = ()

    def __post_init__(self) -> None:
        if not self.tracks and not self.hidden:
            raise ValueError("a group must have a track")
        if self.share < 1:
            raise ValueError(f"a group's share must be a positive integer, got {self.share}")
        drawn = sum(track.reported or 0 for track in self.tracks)
        if drawn > MOST_DRAWN_NODES:
            raise ValueError(f"an entry draws at most {MOST_DRAWN_NODES} nodes, got {drawn}")
        whole = self.tracks + self.hidden
        if self.joint is not None and whole != _marginals(whole, self.joint):
            raise ValueError("the tracks of a joint group follow from it: see Group.jointly and Group.of_history")

    @classmethod
    def jointly(cls, tracks: Sequence[Track], joint: Joint, share: int = 1) -> "Group":
        """A joint group of these tracks, whatever odds their randomizers have.

        Raises ValueError for a randomizer without a joint form, or one whose slots could never matter.
        """
        return cls(_at_marginal_odds(tracks, joint), share, joint)

    @classmethod
    def of_history(cls, history: History, answers: int, share: int = 1, question: int = 0) -> "Group":
        """The group that reports a history of the answers to a question, which has so many.

        In a closed cohort all reports have the same law by themselves, and are one track, or two if the first comes
        early. In an open one each time is a track, as NULL is the likelier the earlier.
        """
        return cls(_of_history(history, answers, question), share, history)

    def about(self, question: int) -> "Group":
        """The group as one question sees it: its tracks about it, as if they were all, at the law that they have."""
        visible = [place for place, track in enumerate(self.tracks) if track.question == question]
        others = [place for place, track in enumerate(self.tracks) if track.question != question]
        joint = self.joint if visible else None
        if isinstance(joint, Joint):
            joint = joint.ordered([*visible, *others])
        tracks, hidden = (tuple(replace(self.tracks[at], question=0) for at in places) for places in (visible, others))
        return Group(tracks, self.share, joint, hidden)

    @cached_property
    def kernel(self) -> Kernel:
        """The distribution of its agreements. Raises ValueError for a group without slots."""
        if not isinstance(self.joint, Joint):
            raise ValueError("each report of this group is drawn by itself, or as a history: there are no slots")
        return _kernel(self.tracks + self.hidden, self.joint)

    @cached_property
    def histories(self) -> HistoryKernel:
        """The distribution of its histories. Raises ValueError if it is no history group."""
        if not isinstance(self.joint, History):
            raise ValueError("this is no history group")
        return _history_kernel(self.joint, self.tracks[0].randomizer.space.answers)


def _kernel(tracks: Sequence[Track], joint: Joint) -> Kernel:
    if len(tracks) != len(joint.slots):
        raise ValueError(f"a joint response of {len(joint.slots)} tracks is none of {len(tracks)}")
    agreements = tuple(agreeing(track.randomizer).agreement for track in tracks)
    bits = sum(p.denominator.bit_length() * slots for p, slots in zip(agreements, joint.slots, strict=True))
    if bits > MOST_JOINT_BITS:
        raise ValueError(
            f"the chances of a joint group's slots have at most {MOST_JOINT_BITS} bits together, got {bits}"
        )
    return Kernel(joint, agreements)


def _marginals(tracks: Sequence[Track], joint: Joint | History) -> tuple[Track, ...]:
    """The tracks, each with the law of one of its reports by itself."""
    if isinstance(joint, History):
        return _of_history(joint, tracks[0].randomizer.space.answers, tracks[0].question)
    return _at_marginal_odds(tracks, joint)


def _at_marginal_odds(tracks: Sequence[Track], joint: Joint) -> tuple[Track, ...]:
    kernel = _kernel(tracks, joint)
    known = {kind: kernel.marginal(place) for place, kind in enumerate(kernel.kinds)}
    marginals = [known[kind] for kind in kernel.kinds]
    for place, odds in enumerate(marginals):
        if odds.favoured == odds.other:
            raise ValueError(f"track {place} of the joint group says nothing: its weight never decides the threshold")
    return tuple(
        replace(track, randomizer=agreeing(track.randomizer).at_odds(odds))
        for track, odds in zip(tracks, marginals, strict=True)
    )


@lru_cache(maxsize=256)
def _history_kernel(history: History, answers: int) -> HistoryKernel:
    possible = PossibleHistories(answers + history.null, history.times, history.null, history.limits)
    return HistoryKernel(history.odds, possible)


@lru_cache(maxsize=256)
def _of_history(history: History, answers: int, question: int) -> tuple[Track, ...]:
    kernel, first, every, last = _history_kernel(history, answers), history.first, history.every, history.last
    if history.null:
        laws = (kernel.marginal(answers, time) for time in range(1, history.times + 1))
        ends = zip(laws, history.periods, strict=True)
        return tuple(Track(1, law, period - 1, period, question=question) for law, period in ends)
    law = kernel.marginal(answers, 1)
    if first >= every:
        return (Track(every, law, first - every, last, question=question),)
    early = Track(1, law, first - 1, first, question=question)
    return (early, Track(every, law, first, last, question=question)) if history.times > 1 else (early,)


@dataclass(frozen=True)
class ReleasePlan:
    """Groups of tracks, of which an entry draws one. Tracks are numbered from 0 on, through all groups in order."""

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        if not self.groups:
            raise ValueError("a plan must have a group")
        if len(self.tracks) > MOST_TRACKS:
            raise ValueError(f"a plan has at most {MOST_TRACKS} tracks, got {len(self.tracks)}")
        nodes = sum(track.count for track in self.tracks)
        if nodes > MOST_NODES:
            raise ValueError(
                f"a plan has at most {MOST_NODES} nodes, got {nodes}: choose longer periods, or fewer tracks"
            )

    def __repr__(self) -> str:
        return f"<ReleasePlan: {len(self.groups)} groups, {len(self.tracks)} tracks>"

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """The groups alone: another process has another hash of them."""
        return {"groups": self.groups}

    @cached_property
    def _hash(self) -> int:
        """Worked out once, as a plan has many tracks, and is looked up for every upload."""
        return hash(self.groups)

    @cached_property
    def tracks(self) -> tuple[Track, ...]:
        """The tracks of all groups, by their numbers in the plan."""
        return tuple(track for group in self.groups for track in group.tracks)

    @cached_property
    def cadences(self) -> frozenset[tuple[int, int, int]]:
        """First period, width and number of nodes of each track; tracks that differ in nothing of it are one."""
        return frozenset((track.first, track.width, track.count) for track in self.tracks)

    @cached_property
    def last_closing(self) -> int:
        """The last period at which a node of any track ends: once it is answered, nothing of the plan is left."""
        return max(first + count * width for first, width, count in self.cadences)

    @cached_property
    def total_share(self) -> int:
        """The sum of the groups' weights."""
        return sum(group.share for group in self.groups)

    def numbered(self, group: int) -> Sequence[tuple[TrackNumber, Track]]:
        """The tracks of a group with their numbers in the plan."""
        return self._numbered[group]

    @cached_property
    def _numbered(self) -> tuple[tuple[tuple[TrackNumber, Track], ...], ...]:
        numbered = [(TrackNumber(number), track) for number, track in enumerate(self.tracks)]
        return tuple(tuple(numbered[first:last]) for first, last in pairwise(self._first_numbers))

    def about(self, question: int) -> "ReleasePlan":
        """The plan with the tracks about a question alone, numbered afresh; groups without any stay, as they count."""
        return ReleasePlan(tuple(group.about(question) for group in self.groups))

    def numbers_about(self, question: int) -> tuple[TrackNumber, ...]:
        """The numbers in this plan of the tracks of `about`, in order."""
        return tuple(TrackNumber(at) for at, track in enumerate(self.tracks) if track.question == question)

    def group_of(self, track: TrackNumber) -> int:
        """The number of the group that a track is in."""
        return bisect_right(self._first_numbers, track) - 1

    @cached_property
    def _first_numbers(self) -> tuple[int, ...]:
        """For each group the number of its first track."""
        return tuple(accumulate((len(group.tracks) for group in self.groups), initial=0))

    def draw_group(self, coins: Coins) -> int:
        """The group of an entry, group g with probability share_g / total share, exactly."""
        drawn = coins.below(self.total_share)
        for number, group in enumerate(self.groups):
            if drawn < group.share:
                return number
            drawn -= group.share
        raise AssertionError("the shares add up to the total")


def draw_nodes(track: Track, coins: Coins) -> list[NodeNumber]:
    """The numbers of the nodes an entry reports on a track: all, or a uniform subset (Floyd 1987), rising."""
    if track.reported is None:
        return track.node_numbers()
    chosen: set[NodeNumber] = set()
    for top in range(track.count - track.reported + 1, track.count + 1):
        number = NodeNumber(1 + coins.below(top))
        chosen.add(NodeNumber(top) if number in chosen else number)
    return sorted(chosen)


@dataclass(frozen=True, slots=True, repr=False)
class SlotState:
    """The memory that a joint group's entry has of its reports, as long as any slot is left; printing it shows nothing.

    used: how many slots of each of the group's tracks are used.
    score: the weights of those that agreed added up, up to the threshold.
    """

    used: tuple[int, ...]
    score: int

    def after(self, group: Group, place: int, agreed: bool) -> "SlotState | None":
        """The slots after one more of the track at that place is used; None if it was the last of the group."""
        used = tuple(slots + (at == place) for at, slots in enumerate(self.used))
        if used == group.kernel.joint.slots:
            return None
        return replace(self, used=used, score=group.kernel.scored(place, self.score, agreed))


Memory: TypeAlias = SlotState | HistoryState
"""The memory that an entry of a joint group has of its reports, as long as another one depends on them."""


def first_memory(group: Group) -> Memory | None:
    """The memory that an entry of a group begins with; None if the group is not joint."""
    match group.joint:
        case None:
            return None
        case Joint():
            return SlotState((0,) * len(group.tracks), 0)
        case History():
            return HistoryState()


def respond(group: Group, place: int, true: int, memory: Memory | None, coins: Coins) -> tuple[int, Memory | None]:
    """Draws the symbol for a node, and tells what the entry remembers after it.

    place: the track's place in the group. true: the input of its randomizer.
    memory: what it remembers; None if nothing, or the group is not joint.

    In a joint group an input that tells nothing, or finds no slot left, is answered from the base, which says nothing.
    So the group costs no more than its odds, however often an answer changes. A history group reports time by time, in
    order: what is not sent, as nobody would count it, is drawn all the same (`unsent`).
    Raises ValueError if all times of a history group were reported.
    """
    randomizer = group.tracks[place].randomizer
    if isinstance(group.joint, History):
        if not isinstance(memory, HistoryState):
            raise ValueError("all times of this history group were reported")
        symbol = group.histories.symbol_at(coins.below(group.histories.total(true, memory)), true, memory)
        after = group.histories.after(memory, true, symbol)
        return symbol, after if after.drawn < group.histories.possible.times else None
    if group.joint is None:
        return randomizer.respond(true, coins), None
    joint = agreeing(randomizer)
    slots = memory if isinstance(memory, SlotState) else None
    if slots is None or slots.used[place] == group.joint.slots[place] or not joint.tells(true):
        return joint.favoured_symbol_at(coins.below(joint.favoured_total(true, _EVEN)), true, _EVEN), slots
    odds = group.kernel.conditional_odds(place, slots.used, slots.score)
    symbol = joint.favoured_symbol_at(coins.below(joint.favoured_total(true, odds)), true, odds)
    return symbol, slots.after(group, place, joint.agrees(symbol, true))


def unsent(group: Group, memory: Memory | None, until: int) -> Iterator[tuple[int, int]]:
    """The times of a history group that end by the period `until` and were not drawn: (place of the track, period).

    They lie before an entry's enrolment, or were dropped as too late. Before it answers a later time a device draws
    their reports, with the states that the entry had, and keeps them to itself.
    """
    if isinstance(memory, HistoryState):
        times = [(place, node.end) for place, track in enumerate(group.tracks) for node in track.nodes()]
        yield from (time for time in times[memory.drawn :] if time[1] <= until)


def plan_as_fields(plan: ReleasePlan) -> list[Fields]:
    """The plan's groups, each with its share, its tracks, and how its reports hang together if it is joint."""
    return [_group_as_fields(group) for group in plan.groups]


class _WrittenGroup(NamedTuple):
    """A group as it was read: its kernel, about how many steps it takes to work that out, and what makes the group."""

    kernel: Kernel | HistoryKernel | None
    steps: int
    make: Callable[[], Group]


def plan_from_fields(groups: list[Any], answers: Sequence[int]) -> ReleasePlan:
    """The plan that `plan_as_fields` wrote. Raises ValueError for anything else.

    answers: how many there are to each question.
    What joint groups take is looked at before any of them is worked out.
    """
    read = [_group_from_fields(group, answers) for group in groups]
    steps = sum({group.kernel: group.steps for group in read}.values())  # those of several questions are often alike
    if steps > MOST_STEPS:
        raise ValueError(f"the joint groups of a plan take at most {MOST_STEPS} steps together, got {steps}")
    return ReleasePlan(tuple(group.make() for group in read))


def _group_as_fields(group: Group) -> Fields:
    if isinstance(group.joint, History):
        return {"share": group.share, "history": {**group.joint.as_fields(), **_named(group.tracks[0].question)}}
    tracks = [_track_as_fields(track) for track in group.tracks]
    if group.joint is None:
        return {"share": group.share, "tracks": tracks}
    for track in tracks:
        del track["randomizer"]["odds"]  # they follow from the group
    return {"share": group.share, "tracks": tracks, "joint": group.joint.as_fields()}


def _group_from_fields(fields: Fields, answers: Sequence[int]) -> _WrittenGroup:
    match fields:
        case {"share": int(share), "tracks": [*listed], "joint": dict(terms), **rest} if not rest:
            tracks, joint = [_joint_track(track, answers) for track in listed], Joint.from_fields(terms)
            kernel = _kernel(tracks, joint)
            return _WrittenGroup(kernel, kernel.steps, lambda: Group.jointly(tracks, joint, share))
        case {"share": int(share), "history": dict(terms), **rest} if not rest:
            question = _question(terms)
            told = {name: value for name, value in terms.items() if name != "question"}
            history, z = History.from_fields(told), _answers_to(question, answers)
            whole = _history_kernel(history, z)
            return _WrittenGroup(whole, whole.possible.steps, lambda: Group.of_history(history, z, share, question))
        case {"share": int(share), "tracks": [*listed], **rest} if not rest:
            alone = tuple(_track_from_fields(track, answers) for track in listed)
            return _WrittenGroup(None, 0, lambda: Group(alone, share))
    raise ValueError("a group is a share and tracks, and what makes it joint; or a share and a history")


def _answers_to(question: int, answers: Sequence[int]) -> int:
    if not 0 <= question < len(answers):
        raise ValueError(f"a track is about question {question}, of {len(answers)} from 0 on")
    return answers[question]


def _joint_track(fields: Fields, answers: Sequence[int]) -> Track:
    match fields:
        case {"randomizer": dict(randomizer)} if "odds" not in randomizer:
            return _track_from_fields({**fields, "randomizer": {**randomizer, "odds": _ANY_ODDS}}, answers)
    raise ValueError("a track of a joint group has a randomizer without odds of its own")


def _track_as_fields(track: Track) -> Fields:
    return {
        "width": track.width,
        "first": track.first,
        "last": track.last,
        "reported": track.reported,
        "randomizer": randomizer_as_fields(track.randomizer),
        **_named(track.question),
    }


def _named(question: int) -> Fields:
    """A question's place as it is written; that of the first is left out."""
    return {"question": question} if question else {}


def _question(fields: Mapping[str, Any]) -> int:
    if "question" not in fields:
        return 0
    match fields["question"]:
        case int(question) if question > 0 and not isinstance(question, bool):
            return question
    raise ValueError("a question is written as its place, that of the first is left out")


def _track_from_fields(fields: Fields, answers: Sequence[int]) -> Track:
    match fields:
        case {
            "width": int(width),
            "first": int(first),
            "last": int(last),
            "reported": None | int() as reported,
            "randomizer": dict(randomizer),
            **rest,
        } if rest.keys() <= {"question"}:
            question = _question(rest)
            answering = randomizer_from_fields(randomizer, _answers_to(question, answers))
            return Track(width, answering, first, last, reported, question)
    raise ValueError("a track is its width, first, last, reported and randomizer, and its question")
