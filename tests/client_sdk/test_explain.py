"""What the client tells a person about a survey, against all that an adversary could see, by enumeration; what a
report says in words; and the paragraph for a privacy notice.

Nothing here uses the charge: probabilities of transcripts come from the randomizers' weights, and posteriors from them.
"""

from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import permutations, product
from math import prod

import pytest
from changeling_client import explain, privacy_notice
from changeling_client.explanation import BEFORE, PLACES, conclude, percent_down, percent_up, said, truthfulness
from changeling_protocol import (
    AtMost,
    Breakdown,
    Calendar,
    CustomResponse,
    ExpectedChanges,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    Report,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Track,
    UnaryEncoding,
)
from changeling_statistics.testing import name, possible
from hypothesis import given
from hypothesis import strategies as st

from ..contracts.randomizers import LARGER, RANDOMIZERS
from ..enumeration import all_inputs, changelogs, literal_transcript_ratio, probability, worst_transcript_ratio
from ..joint_enumeration import worst_joint_ratio
from ..protocol.examples import joint_plan, mixed, survey
from .device import PLAIN, START, Clock, FakeServer, client

LAST_PLACE = Decimal(f"1e-{PLACES}")


def asking(*tracks, periods=2, answers=2, most=2, joint=None, closed=False):
    """A survey of one group over a few periods."""
    group = Group(tracks) if joint is None else Group.jointly(tracks, joint)
    return survey(
        ReleasePlan((group,)),
        answers=("tea", "coffee", "neither")[:answers],
        calendar=Calendar(1_800_000_000, 60, periods),
        constraint=AtMost(most),
        closed=closed,
    )


ONE, TWO = MutationSpace(1), MutationSpace(2)
SMALL = {
    "k-rr of changes": asking(Track(1, KaryResponse(TWO, Odds(3, 1)), 0, 2)),
    "k-rr of states": asking(Track(1, KaryResponse(StateSpace(2), Odds(7, 2)), 0, 2)),
    "silent k-rr": asking(Track(1, KaryChange(TWO, Odds(3, 1)), 0, 3), periods=3, most=1),
    "signed subsets": asking(Track(1, SignedSubset(TWO, Odds(5, 1)), 0, 3), periods=3, most=2),
    "subset selection": asking(Track(1, SubsetSelection(StateSpace(2), Odds(3, 1), 2), 0, 2)),
    "unary": asking(Track(1, UnaryEncoding(StateSpace(2), Odds(3, 1)), 0, 2)),
    "one drawn node": asking(Track(1, KaryResponse(StateSpace(2), Odds(9, 1)), 0, 3, reported=1), periods=3),
    "closed": asking(Track(1, KaryResponse(StateSpace(2, null=False), Odds(4, 1)), 0, 2), closed=True),
    "joint": asking(Track(1, SignedSubset(ONE, Odds(2, 1)), 0, 2), answers=1, joint=Joint(Odds(9, 1), 2, (1,), (2,))),
}


@pytest.mark.parametrize("case", SMALL)
def test_no_posterior_leaves_what_is_explained_and_some_adversary_attains_it(case):
    """Over every pair of changelogs and every transcript: whoever holds one for p likely and else the other.

    Any other adversary's posterior is a mean of such ones. Attained to the last place but for the survey's own rounding
    of its epsilon, to millionths.
    """
    asked = SMALL[case]
    (group,) = asked.plan.groups
    every = list(changelogs(len(asked.answers), asked.calendar, asked.constraint, asked.closed))
    if group.joint is None:
        worst = max(worst_transcript_ratio(group, one, other) for one, other in product(every, every))
    else:
        worst = worst_joint_ratio(group, [all_inputs(group, states) for states in every])
    for stated in explain(asked).conclusions:
        p = Fraction(stated.before)
        highest, lowest = p * worst / (p * worst + 1 - p), p / (p + (1 - p) * worst)
        assert lowest * Fraction(999_998, 10**6) - Fraction(LAST_PLACE) <= stated.at_least <= lowest
        assert highest <= stated.at_most <= highest * Fraction(1_000_002, 10**6) + Fraction(LAST_PLACE)


@given(weights=st.lists(st.integers(1, 20), min_size=9, max_size=9), before=st.sampled_from(BEFORE))
def test_whoever_asks_whether_an_answer_was_ever_held_stays_within_it(weights, before):
    """The very sentence that a person reads, for any adversary: every transcript's posterior, from any prior.

    weights: what the adversary thinks of each changelog, within those that ever answered tea, and within the others.
    """
    asked = SMALL["k-rr of changes"]
    (track,) = asked.plan.groups[0].tracks
    every = list(changelogs(2, asked.calendar, asked.constraint))
    assert len(every) == len(weights)
    ever = [1 in states for states in every]
    p = Fraction(before)
    totals = {held: sum(w for w, tea in zip(weights, ever, strict=True) if tea == held) for held in (True, False)}
    prior = [(p if tea else 1 - p) * Fraction(w, totals[tea]) for w, tea in zip(weights, ever, strict=True)]
    stated = explain(asked).conclude(before)
    inputs = [all_inputs(asked.plan.groups[0], states)[0] for states in every]
    for symbols in product(range(track.randomizer.symbols), repeat=track.count):
        likely = [
            chance * prod(probability(track.randomizer, o, u) for o, u in zip(symbols, us, strict=True))
            for chance, us in zip(prior, inputs, strict=True)
        ]
        posterior = sum(each for each, tea in zip(likely, ever, strict=True) if tea) / sum(likely)
        assert stated.at_least <= posterior <= stated.at_most


def test_having_ever_held_an_answer_can_be_told_as_far_as_it_is_said():
    """The example that is given is no weaker than the worst question: here somebody can come as far."""
    asked = SMALL["k-rr of changes"]
    (group,) = asked.plan.groups
    every = list(changelogs(2, asked.calendar, asked.constraint))
    tea, none = [[states for states in every if (1 in states) == held] for held in (True, False)]
    worst = max(literal_transcript_ratio(group, one, other) for one, other in product(tea, none))
    example = explain(asked).conclusions[1]
    assert Fraction(example.at_most) - worst / (worst + 9) < Fraction(1, 10**6)


def tells(randomizer, true):
    """Whether some symbol is favoured by an input above one that tells nothing: for changes no change, if so."""
    if isinstance(randomizer, KaryChange | SignedSubset):
        return true != 0
    return True


def names_the_truth(randomizer, symbol, true):
    """What it is to tell the truth, for each kind of randomizer."""
    match randomizer:
        case KaryResponse() | KaryChange():
            return symbol == true
        case SignedSubset(space=space, vectors=vectors, quiet=quiet):
            old, new = (state - (not space.null) for state in space.pair(true))
            signs = None if symbol < quiet else vectors.unrank(symbol - quiet)
            return signs is not None and (signs[new], signs[old]) == (1, -1)
        case SubsetSelection(subsets=subsets):
            return subsets.unrank(symbol)[true] == 1
        case UnaryEncoding():
            return bool(symbol >> true & 1)
    raise AssertionError(randomizer.kind)


def chance(randomizer, given_input, of_input):
    """How likely what is sent for one input names another as the truth."""
    return sum(
        probability(randomizer, symbol, given_input)
        for symbol in range(randomizer.symbols)
        if names_the_truth(randomizer, symbol, of_input)
    )


@pytest.mark.parametrize("randomizer", RANDOMIZERS + LARGER, ids=name)
def test_one_report_tells_the_truth_just_as_often_as_is_said(randomizer):
    """Enumerated from the weights, for every input that tells; and without truth, by luck."""
    stated = truthfulness(randomizer)
    inputs = possible(randomizer.space)
    assert stated.changes == randomizer.space.reports_changes
    if randomizer.kind in ("custom", "based-states"):  # for which a best guess counts
        best = [max(probability(randomizer, o, u) for u in inputs) for o in range(randomizer.symbols)]
        assert (stated.truth, stated.luck) == (Fraction(sum(best), len(inputs)), Fraction(1, len(inputs)))
        return
    telling = [u for u in inputs if tells(randomizer, u)]
    assert {chance(randomizer, u, u) for u in telling} == {stated.truth}
    if isinstance(randomizer, UnaryEncoding):
        lucky = {chance(randomizer, u, v) for u, v in product(telling, telling) if u != v}
    elif len(telling) < len(inputs):
        lucky = {chance(randomizer, 0, v) for v in telling}
    else:  # a symbol that is drawn uniformly, whatever the truth
        lucky = {
            Fraction(sum(names_the_truth(randomizer, o, v) for o in range(randomizer.symbols)), randomizer.symbols)
            for v in telling
        }
    assert lucky == {stated.luck}


@pytest.mark.parametrize("epsilon", ["0", "0.000001", "0.5", "1", "8", "25", "43", "99.9", "100", "1000000000"])
@pytest.mark.parametrize("before", ["0.000001", "0.01", "0.1", "0.5", "0.99"])
def test_bounds_are_rounded_against_us_and_by_less_than_the_last_place(epsilon, before):
    """Against 90 digits; an epsilon without end is certainty."""
    stated = conclude(Decimal(before), Decimal(epsilon))
    with localcontext(prec=90):
        p, ratio = Decimal(before), min(Decimal(epsilon), Decimal(150)).exp()
        above, below = p * ratio / (p * ratio + 1 - p), p / (p + (1 - p) * ratio)
        assert below - LAST_PLACE < stated.at_least <= below <= above <= stated.at_most < above + LAST_PLACE


@pytest.mark.parametrize(("before", "epsilon"), [("0", "1"), ("1", "1"), ("0.5", "-1"), ("-0.1", "1")])
def test_what_is_no_probability_is_refused(before, epsilon):
    """Nobody who is certain can be moved, and no loss is negative."""
    with pytest.raises(ValueError, match="probability between 0 and 1"):
        conclude(Decimal(before), Decimal(epsilon))


def test_nothing_depends_on_the_apps_decimal_context():
    """Of one digit, and rounding down."""
    expected = explain(SMALL["joint"])
    with localcontext(prec=1, rounding="ROUND_DOWN"):
        explained = explain(replace(SMALL["joint"]))
        shown = str(explained)
    assert (explained, shown) == (expected, str(expected))


@given(st.integers(0, 10**12))
def test_a_percentage_never_makes_it_look_better(trillionths):
    """Upper figures are rounded up, lower ones down, by less than a tenth of the distance to 0% and 100%, if shown."""
    share = Fraction(trillionths, 10**12)
    up, down = (Fraction(shown.removesuffix("%")) / 100 for shown in (percent_up(share), percent_down(share)))
    assert 0 <= down <= share <= up <= 1
    assert up - down <= max(min(share, 1 - share) / 10, Fraction(1, 10**8))


def test_a_person_reads_no_epsilon_but_in_the_experts_line():
    """Nor odds, nor any Greek. Of a plan of several groups the one that reports most is told."""
    assert explain(survey(mixed(3, 8))).reports == 8
    for asked in (survey(), survey(joint_plan(3, 8)), *SMALL.values()):
        *lines, experts = str(explain(asked)).splitlines()
        assert experts.startswith("- For experts: ")
        assert f"epsilon {asked.epsilon} over the whole survey" in experts
        assert f"{asked.per_week} a week, which bounds no single week or report" in experts
        words = "\n".join(lines).lower()
        assert not any(word in words for word in ("epsilon", "ε", "nats", " : 1", "entry", "randomiz"))


def test_the_words_hold_what_a_person_would_ask():
    """The figures of the example, what is public, when it ends, a backup, and that surveys add up."""
    shown = Breakdown("platform", ("linux", "mac"))
    asked = replace(SMALL["k-rr of states"], breakdowns=(shown,), stratum_changes=2, follows=bytes(16))
    words = str(explain(asked))  # two states at odds of 7:2: a ratio of 49:4 for both reports
    assert (
        'it was 10% likely that you ever answered "tea" can at most come to think it 58%, and at least 0.89%' in words
    )
    assert "64% of the time; by luck it would 33% of the time" in words
    assert (
        "at most 2 reports, until 2027-01-15 08:02 UTC; one that is late may leave it until 2027-01-15 08:12" in words
    )
    assert "platform (linux, mac); it may change 2 times" in words
    assert "put back once while the survey runs, and nothing notices" in words
    assert "from 10% to 94.4% at most" in words
    assert "goes on from another one" in words


DAILY = Calendar(1_798_761_600, 86_400, 8)


def test_a_notice_is_one_paragraph_of_what_is_asked_sent_concluded_public_and_withdrawn():
    """With the same figures as the explanation; and not what the designer expects, nor an epsilon."""
    notice = privacy_notice(survey(calendar=DAILY, minimum=50))
    assert "\n" not in notice
    for words in (
        'the question "What do you drink?"; the answers that it tells apart are "tea", "coffee" or "neither".',
        "From 2027-01-01 to 2027-01-09 your device sends at most 14 randomized reports on how your answer has changed. "
        "They fall due at most once every day; those that fall due together go in one message, encrypted for",
        'such as that you ever answered "tea", can come to be thought at most 99.9984% and at least 0.00002% likely',
        "from at least 50 reports each",
        "on how your answer has changed.",
        "No relay stands between",
        "You can withdraw in this app at any time",
        "cannot be found again",
    ):
        assert words in notice
    (one,) = explain(survey()).one_report
    assert str(one) in notice
    assert "epsilon" not in notice.lower()
    assert privacy_notice(survey()) == privacy_notice(survey().asking(expected=ExpectedChanges(1, 1)))
    platform, (panel, *_) = Breakdown("platform", ("linux", "mac")), mixed(3, 8).groups
    states = survey(replace(mixed(3, 8), groups=(panel,)))
    notice = privacy_notice(replace(states, breakdowns=(platform,), relay="https://relay.example.org"))
    assert "on which answer you hold. They fall due at most once every minute;" in notice
    assert "platform (linux, mac)" in notice
    assert "A relay at https://relay.example.org stands between" in notice
    assert "No relay" not in notice
    assert "on how your answer has changed or which answer you hold." in privacy_notice(survey(joint_plan(3, 8)))


STATES, CHANGES, ODDS = StateSpace(3), MutationSpace(3), Odds(3, 1)
SAYING = {
    "the paper's pairs": KaryResponse(MutationSpace(3, repeats=True), ODDS),
    "k-RR of states": KaryResponse(STATES, ODDS),
    "k-RR of changes": KaryResponse(CHANGES, ODDS),
    "k-RR that is silent": KaryChange(CHANGES, ODDS),
    "signed subsets": SignedSubset(CHANGES, ODDS, spoken=Fraction(1, 2)),
    "subsets": SubsetSelection(STATES, ODDS, 2),
    "bits": UnaryEncoding(STATES, ODDS),
    "a matrix": CustomResponse(STATES, tuple(tuple(2 if o == u else 1 for u in range(4)) for o in range(4))),
}


def all_said(randomizer):
    asked = survey(ReleasePlan((Group((Track(1, randomizer, 0, 8),)),)), answers=("tea", "coffee", "water"))
    return [said(asked, Report(0, 1, symbol)) for symbol in range(randomizer.symbols)]


@pytest.mark.parametrize(
    ("name", "symbol", "words"),
    [
        ("k-RR of states", STATES.index(0, 1), "tea"),
        ("k-RR of states", STATES.index(1, 0), "no answer"),
        ("k-RR of changes", CHANGES.index(1, 2), "from tea to coffee"),
        ("k-RR of changes", CHANGES.index(2, 2), "no change"),
        ("k-RR that is silent", CHANGES.index(0, 3), "from no answer to water"),
        ("signed subsets", 0, "nothing"),
        ("bits", 0b0110, "tea and coffee"),
        ("bits", 0, "none of the answers"),
        ("a matrix", 2, "the number 2, of 4"),
    ],
)
def test_a_report_is_said_as_a_person_would(name, symbol, words):
    """States and answers by their names."""
    assert all_said(SAYING[name])[symbol] == words


def test_a_vector_that_fits_a_change_says_more_of_the_new_and_less_of_the_old():
    """For every vector and change, in the words."""
    names, randomizer = ["no answer", "tea", "coffee", "water"], SAYING["signed subsets"]
    for symbol, words in enumerate(all_said(randomizer)[1:], 1):
        more, less = words.removeprefix("more of ").split(", less of ")
        for old, new in permutations(range(4), 2):
            told = names[new] in more and names[old] in less
            assert randomizer.agrees(symbol, CHANGES.index(old, new)) == told


def test_without_null_nothing_is_said_of_having_no_answer():
    """In a closed cohort the signs stand for the answers alone."""
    randomizer = SignedSubset(MutationSpace(3, null=False), ODDS)
    asked = survey(
        ReleasePlan((Group((Track(1, randomizer, 1, 8),)),)), answers=("tea", "coffee", "water"), closed=True
    )
    for symbol in range(randomizer.symbols):
        assert "no answer" not in said(asked, Report(0, 1, symbol))


def test_no_survey_forges_a_line_of_what_a_person_reads(tmp_path):
    """Whatever its text holds, escapes of a terminal, newlines or marks that turn the reading direction, each thing
    that is printed has as many lines as with a plain text, and no sign that is not printed."""

    def printed(folder, question, answers):
        asked = PLAIN.asking(question=question, answers=answers)
        server, clock = FakeServer(asked), Clock(START + 1)
        with client(folder, server, clock) as device:
            device.join(asked.id).record(answers[1])
            device.at(clock.now + 80).flush()
            return [
                str(device.ledger()),
                *map(str, device.reports()),
                str(device.explain(asked.id)),
                privacy_notice(asked),
            ]

    forged = "Tea?\n- survey 0 (joined): 0 of 0\x1b[2J\r\u202e\u2028"
    hostile = printed(tmp_path / "hostile", forged, ("tea\x1b[1A\n", "cof\nfee", "nei\x07ther"))
    plain = printed(tmp_path / "plain", "Tea?", ("tea", "coffee", "neither"))
    for one, other in zip(hostile, plain, strict=True):
        assert one.count("\n") == other.count("\n")
        assert all(line.isprintable() for line in one.split("\n"))
