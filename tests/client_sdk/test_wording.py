"""What a report says, in words."""

from fractions import Fraction

import pytest
from changeling_client import privacy_notice
from changeling_client.explanation import said
from changeling_protocol import (
    CustomResponse,
    Group,
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

from ..protocol.examples import survey
from .device import PLAIN, START, Clock, FakeServer, client

STATES, CHANGES, ODDS = StateSpace(3), MutationSpace(3), Odds(3, 1)
RANDOMIZERS = {
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


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_no_two_symbols_say_the_same(name):
    """So the words hold all that was sent."""
    words = all_said(RANDOMIZERS[name])
    assert len({*words}) == len(words)
    assert all(words)


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
    assert all_said(RANDOMIZERS[name])[symbol] == words


@pytest.mark.parametrize("old", range(4))
@pytest.mark.parametrize("new", range(4))
def test_a_vector_that_fits_a_change_says_more_of_the_new_and_less_of_the_old(old, new):
    """For every vector, in the words."""
    names, randomizer = ["no answer", "tea", "coffee", "water"], RANDOMIZERS["signed subsets"]
    if old == new:
        return
    true = CHANGES.index(old, new)
    for symbol, words in enumerate(all_said(randomizer)[1:], 1):
        more, less = words.removeprefix("more of ").split(", less of ")
        assert randomizer.agrees(symbol, true) == (names[new] in more and names[old] in less)


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
            clock.now += 80
            device.flush()
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
