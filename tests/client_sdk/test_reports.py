"""What a person can see of what was sent, what waits, and what could be sent next."""

from fractions import Fraction

import pytest
from changeling_client.testing import FakeServer, make_client, make_survey
from changeling_protocol import (
    Group,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Track,
)

from ..protocol.examples import survey
from .device import FakeServer as ContractServer
from .device import client

TEN = make_survey(periods=10)


@pytest.fixture
def server():
    server = FakeServer()
    server.publish(TEN)
    return server


def test_what_was_sent_is_what_the_server_received(tmp_path, server):
    """Word by word, with dates, and said to have arrived; what waits is said to wait."""
    with make_client(tmp_path, server) as device:
        handle = device.join(TEN.id)
        handle.record("tea")
        server.clock.advance(days=2)
        device.flush()
        handle.record("coffee")
        server.go_offline()
        server.clock.advance(days=1)
        device.flush()
        (about,) = device.reports()
    assert (about.id, about.question) == (TEN.id.hex(), TEN.question)
    assert [report.says for told in about.told if told.arrived for report in told.reports] == [
        report.says for report in server.reports
    ]
    assert [(told.arrived, told.closed.isoformat()[:10]) for told in about.told] == [
        (True, "2027-01-02"),
        (True, "2027-01-03"),
        (False, "2027-01-04"),
    ]
    ((waits,),) = [told.reports for told in about.told if not told.arrived]
    assert waits.says == "from tea to coffee"
    assert "2027-01-04 00:00 UTC, waits to be sent" in str(about)


def test_every_report_says_how_often_such_a_one_is_true(tmp_path):
    """In the words as well: a person reads them, and not the type."""
    server, asked = FakeServer(), make_survey(periods=10, epsilon=3)
    with make_client(tmp_path, server) as device:
        device.join(server.publish(asked)).record("tea")
        server.clock.advance(days=3)
        device.flush()
        (about,) = device.reports()
    shown = str(about)
    reports = [report for told in about.told for report in told.reports]
    assert len(reports) == 3
    assert all(0 < report.luck < report.truth < 1 for report in reports)
    assert shown.count("chosen at random: true about") == len(reports) + len(about.coming)


def test_the_preview_hangs_on_nothing_that_was_answered(tmp_path):
    """Nor does anything else but the words of what was drawn: with the same coins for those, all is the same."""
    shown = []
    for name, answers in (("a", []), ("b", ["tea"]), ("c", ["coffee", "tea", "neither"])):
        server = FakeServer()
        server.publish(TEN)
        with make_client(tmp_path / name, server) as device:
            handle = device.join(TEN.id)
            for answer in answers:
                handle.record(answer)
            device.flush()
            (about,) = device.reports()
        assert about.told == ()
        shown.append(str(about.coming[0]))
    assert len({*shown}) == 1
    assert "one of “no change”, “from no answer to tea”" in shown[0]
    assert f"({TEN.plan.tracks[0].randomizer.symbols} in all)" in shown[0]


def test_the_next_answer_is_due_when_it_is_given(tmp_path, server):
    """A millisecond before nothing is sent, and a second later it is."""
    with make_client(tmp_path, server) as device:
        device.join(TEN.id).record("tea")
        device.flush()
        ((coming,),) = (about.coming for about in device.reports())
        due = coming.due.timestamp()
        server.clock.now = due - 1
        assert device.flush().sent == 0
        server.clock.now = due + 1
        assert device.flush().sent == 1


def test_states_and_signs_are_told_in_words_and_only_drawn_nodes_are_foretold(tmp_path):
    """A panel's answer at most closes is no report at all."""
    panel = Track(1, SubsetSelection(StateSpace(3), Odds(5, 1), 2), 0, 8, reported=1)
    changes = Track(4, SignedSubset(MutationSpace(3), Odds(5, 1), spoken=Fraction(1, 2)), 0, 8)
    asked = survey(ReleasePlan((Group((panel, changes)),)), grace=10**6)
    server = ContractServer(asked)
    server.clock.now = asked.calendar.start
    with client(tmp_path, server, server.clock) as device:
        device.join(asked.id).record("tea")
        kinds = set()
        for period in range(1, 9):
            ((coming,),) = (about.coming for about in device.reports())
            server.clock.now = asked.calendar.time(period) + asked.skew + asked.spread + 1
            assert device.flush().sent == 1
            told = device.reports()[0].told if device.reports() else ()
            if told:
                assert len(told[-1].reports) == len(coming.reports)
            kinds |= {report.about_a_change for report in coming.reports}
            assert len(coming.reports) <= 2
    assert kinds == {True, False}


def test_without_consent_and_after_leaving_there_is_nothing_to_see(tmp_path, server):
    """And nothing is kept."""
    with make_client(tmp_path, server) as device:
        device.join(TEN.id).record("tea")
        server.clock.advance(days=1)
        device.flush()
        assert device.reports()
        device.leave(TEN.id)
        assert device.reports() == ()
        device.set_consent(False)
        assert device.reports() == ()
