"""Joining: because the app names the survey, with the authority's signature, within what may be spent."""

from dataclasses import replace
from decimal import Decimal

import httpx
import pytest
from changeling_client import (
    BadEnrolment,
    BadSurvey,
    CannotJoin,
    Client,
    EnrolmentOver,
    Recorded,
    ServerTrouble,
    Status,
    TooCostly,
    WrongSurvey,
)
from changeling_protocol import BadSignature, MalformedBytes, Survey, UnderstatedEpsilon, decode, encode, signed
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..protocol.examples import AUTHORITY, PINNED, survey
from .device import LATE, PLAIN, START, Clock, FakeServer, by_node, client

OTHER = PLAIN.asking(question="And what would you rather?")
CLOSED = survey(closed=True, grace=10**6)
STRANGER = Ed25519PrivateKey.from_private_bytes(b"s" * 32)


def unreachable(_request):
    raise httpx.ConnectError("no route")


def assert_nothing_joined(device):
    assert device.ledger().spent == 0
    assert device.flush().sent == 0
    assert Status.JOINED not in {survey.status for survey in device.ledger().surveys}


def test_joining_again_is_the_same_and_asks_nobody(tmp_path):
    """A survey is fetched once; joining again, from another process too, gives the same entries."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id, entries=2, signed=None).record("tea", 1)
        device.flush()
        assert device.join(PLAIN.id.hex(), entries=2, signed=None).answer(1) == "tea"
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id, entries=2, signed=None)
        device.flush()
        assert handle.answer(1) == "tea"
        assert handle.survey == PLAIN
        assert device.ledger().spent == PLAIN.epsilon
    assert server.paths() == [f"/v1/surveys/{PLAIN.id.hex()}"]


def moved(path, server, url, **options):
    """A client of the same store, when the first period is answered, whose app names another server."""
    server.clock.now = PLAIN.calendar.time(1) + PLAIN.skew + PLAIN.spread + 1  # whatever delay it drew
    return Client(
        server=url,
        authority=PINNED,
        max_epsilon=10**6,
        path=path / "store.db",
        background=False,
        transport=server.transport(),
        clock=server.clock,
        **options,
    )


@pytest.mark.parametrize("known", [False, True], ids=["asked", "joined"])
def test_when_the_server_moves_what_waits_goes_to_the_new_one(tmp_path, known):
    """A mistyped URL in a release, or another domain, costs no device: it follows what the app names."""
    away, server = FakeServer(), FakeServer(PLAIN)
    with client(tmp_path, away, Clock()) as device:
        device.join(PLAIN.id, signed=PLAIN.signed_by(AUTHORITY) if known else None).record("tea")
        device.flush()
    with moved(tmp_path, server, "https://elsewhere.example") as device:
        device.flush()
        assert device.join(PLAIN.id).status is Status.JOINED
        assert device.ledger().spent == PLAIN.epsilon
    assert server.reports()


def test_what_counts_nothing_stays_on_loopback(tmp_path):
    """A survey that was joined for development, and so cost nothing, is not answered anywhere else afterwards."""
    home, server = FakeServer(PLAIN), FakeServer(PLAIN)
    with moved(tmp_path, home, "http://127.0.0.1:8080", development=True) as device:
        device.join(PLAIN.id, signed=PLAIN.signed_by(AUTHORITY)).record("tea")
        assert device.ledger().spent == 0
    with moved(tmp_path, server, "https://elsewhere.example") as device:
        device.flush()
    assert server.requests == []


def test_no_authority_is_a_key_under_which_anybody_signs(tmp_path):
    """All zeros, the usual placeholder, among them; nor is one key taken for a list of keys."""
    for authority in ([bytes(32)], [b"\1" + bytes(31)], [PINNED[0][:31]], PINNED[0], []):
        with pytest.raises(ValueError, match=r"authority|low order"):
            Client(server="https://a.example", authority=authority, max_epsilon=1, path=tmp_path / "store.db")


def test_a_bundled_survey_needs_no_server(tmp_path):
    """Signed bytes that the app brings are verified like the server's, and nobody is asked."""
    server = FakeServer()
    with client(tmp_path, server, Clock()) as device:
        assert device.join(PLAIN.id, signed=PLAIN.signed_by(AUTHORITY)).survey == PLAIN
    assert server.requests == []


def test_a_survey_signed_by_another_authority_is_refused(tmp_path):
    """Whoever runs the server cannot make a survey."""
    with client(tmp_path, FakeServer(), Clock()) as device:
        with pytest.raises(BadSurvey, match="none of the pinned authority keys") as refused:
            device.join(PLAIN.id, signed=PLAIN.signed_by(STRANGER))
        assert isinstance(refused.value.__cause__, BadSignature)
        assert_nothing_joined(device)


def test_any_pinned_key_may_have_signed(tmp_path):
    """Apps pin the current and the next key."""
    pinned = (STRANGER.public_key().public_bytes_raw(), *PINNED)
    with client(tmp_path, FakeServer(PLAIN, OTHER), Clock(), authority=pinned) as device:
        for signed_by in (STRANGER, AUTHORITY):
            asked = {STRANGER: PLAIN, AUTHORITY: OTHER}[signed_by]
            assert device.join(asked.id, signed=asked.signed_by(signed_by)).survey == asked


def test_a_survey_with_any_byte_changed_is_refused(tmp_path):
    """Every single changed byte is noticed, and nothing is joined."""
    encoded = PLAIN.signed_by(AUTHORITY)
    with client(tmp_path, FakeServer(), Clock()) as device:
        for at in range(len(encoded)):
            tampered = encoded[:at] + bytes([encoded[at] ^ 1]) + encoded[at + 1 :]
            with pytest.raises(BadSurvey) as refused:
                device.join(PLAIN.id, signed=tampered)
            assert isinstance(refused.value.__cause__, BadSignature | MalformedBytes)
        assert_nothing_joined(device)


def test_a_survey_that_understates_its_epsilon_is_refused(tmp_path):
    """Even one that the authority signed."""
    fields = decode(PLAIN.payload)
    del fields["kind"], fields["version"]
    lie = signed(Survey.kind, {**fields, "epsilon_micro": PLAIN.epsilon_micro - 1}, AUTHORITY)
    with client(tmp_path, FakeServer(), Clock()) as device:
        with pytest.raises(BadSurvey, match="states epsilon") as refused:
            device.join(PLAIN.id, signed=lie)
        assert isinstance(refused.value.__cause__, UnderstatedEpsilon)
        assert_nothing_joined(device)


def test_a_survey_of_another_protocol_version_is_refused_by_name(tmp_path):
    """Its version and the one that this client speaks are in the error."""
    payload = encode({**decode(PLAIN.payload), "version": 1})
    old = encode({"payload": payload, "signature": AUTHORITY.sign(payload)})
    with client(tmp_path, FakeServer(), Clock()) as device:
        with pytest.raises(BadSurvey, match="has protocol version 1; this is version 3"):
            device.join(PLAIN.id, signed=old)
        assert_nothing_joined(device)


@pytest.mark.parametrize("signed_survey", [b"", b"\xc1", b"no survey at all", PLAIN.payload, PLAIN.signed_by(STRANGER)])
def test_whatever_is_wrong_with_a_survey_is_a_client_error(tmp_path, signed_survey):
    """Bytes that the app brings are refused at once; of the server's the handle and `on_error` tell."""
    server, told = FakeServer(PLAIN), []
    server.signed[PLAIN.id.hex()] = signed_survey
    with client(tmp_path, server, Clock(), on_error=told.append) as device:
        with pytest.raises(BadSurvey):
            device.join(PLAIN.id, signed=signed_survey)
        assert told == []
        handle = device.join(PLAIN.id, signed=None)
        assert (handle.status, handle.reason) == (Status.ASKED, "")
        assert_nothing_joined(device)
        assert handle.status is Status.REFUSED
        assert handle.reason.startswith("BadSurvey: ")
        assert [type(error) for error in told] == [BadSurvey]


def test_another_survey_than_the_one_named_is_refused(tmp_path):
    """A server cannot put a second, properly signed survey in the place of the one the app asked for."""
    server = FakeServer(PLAIN, OTHER)
    server.signed[PLAIN.id.hex()] = OTHER.signed_by(AUTHORITY)
    with client(tmp_path, server, Clock()) as device:
        with pytest.raises(WrongSurvey, match=OTHER.id.hex()):
            device.join(PLAIN.id)
        handle = device.join(PLAIN.id, signed=None)
        assert_nothing_joined(device)
        assert handle.status is Status.REFUSED
        assert handle.reason.startswith("WrongSurvey: ")
        assert OTHER.id.hex() in handle.reason


def test_the_sum_over_all_surveys_stays_within_max_epsilon(tmp_path):
    """Two surveys fit exactly; a third of the least epsilon does not, and is not joined."""
    small = survey(grace=10**6)
    again, third = small.asking(question="Again?"), small.asking(question="A third time?")
    server = FakeServer(small, again, third)
    with client(tmp_path, server, Clock(), max_epsilon=2 * small.epsilon) as device:
        device.join(small.id, entries=7)
        device.join(again.id)
        with pytest.raises(TooCostly, match=str(3 * small.epsilon)):
            device.join(third.id)
        assert device.ledger().spent == 2 * small.epsilon
    with client(tmp_path, server, Clock(), max_epsilon=Decimal(1)) as device:
        assert device.join(small.id, entries=7).status is Status.JOINED
        assert device.ledger().spent == 2 * small.epsilon
        with pytest.raises(CannotJoin):
            device.join(third.id)


def test_max_epsilon_is_taken_as_written(tmp_path):
    """A survey of epsilon 6.6 fits into the float 6.6, though the float is a little less."""
    small = survey(grace=10**6)
    exact = replace(small, epsilon_micro=-(-small.epsilon_micro // 100_000) * 100_000)
    assert Decimal(float(exact.epsilon)) != exact.epsilon
    with client(tmp_path, FakeServer(exact), Clock(), max_epsilon=float(exact.epsilon)) as device:
        device.join(exact.id)


@pytest.mark.parametrize("max_epsilon", [0, -1, float("nan"), float("inf"), "much"])
def test_max_epsilon_must_be_a_positive_number(tmp_path, max_epsilon):
    """There is no unbounded client."""
    with pytest.raises(ValueError, match="max_epsilon"):
        client(tmp_path, FakeServer(), Clock(), max_epsilon=max_epsilon)


def test_the_number_of_entries_only_grows(tmp_path):
    """Joining with more adds those that lack, also before the survey is known; with fewer it changes nothing."""
    with client(tmp_path, FakeServer(PLAIN), Clock()) as device:
        with pytest.raises(ValueError, match="with 0 to 65536 entries, got -1"):
            device.join(PLAIN.id, entries=-1)
        handle = device.join(PLAIN.id, entries=2, signed=None)
        assert device.join(PLAIN.id, entries=3, signed=None).record("tea", 2) is Recorded.PENDING
        assert handle.add_entries(answers=["coffee"]) == range(3, 4)
        device.join(PLAIN.id, entries=1)
        assert [handle.answer(entry) for entry in range(4)] == [None, None, "tea", "coffee"]
        assert device.join(PLAIN.id, entries=5).add_entries() == range(5, 6)
        with pytest.raises(ValueError, match="has 6; got 65531 more"):
            handle.add_entries(65_531)


@pytest.mark.parametrize("named", ["ab", b"\0" * 15, "zz" * 16])
def test_an_id_is_16_bytes(tmp_path, named):
    """Anything else is told from a survey that does not exist."""
    with client(tmp_path, FakeServer(), Clock()) as device, pytest.raises(ValueError, match="16 bytes"):
        device.join(named)


def test_joining_after_the_end_is_refused_but_coming_back_is_not(tmp_path):
    """A calendar that has ended takes no new entries; an entry that was there can still send what waits."""
    server, clock = FakeServer(PLAIN, OTHER), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        clock.now = LATE
        with pytest.raises(EnrolmentOver):
            device.join(OTHER.id)
        assert device.join(PLAIN.id).survey == PLAIN
        assert device.flush().sent == 8


def test_a_server_that_cannot_be_asked_is_told_from_one_that_refuses(tmp_path):
    """`join` waits for nobody; a flush tells what failed, and asks again the next time. Nothing is refused for it."""
    server, told = FakeServer(), []
    with client(tmp_path, server, Clock(), on_error=told.append) as device:
        handle = device.join(PLAIN.id)
        assert server.requests == []
        assert "404" in device.flush().trouble
        server.reply = unreachable
        assert "ConnectError" in device.flush().trouble
        assert (handle.status, handle.survey, handle.ledger()) == (Status.ASKED, None, None)
        server.reply = lambda _: None
        server.signed[PLAIN.id.hex()] = PLAIN.signed_by(AUTHORITY)
        assert device.flush().trouble is None
        assert (handle.status, handle.survey) == (Status.JOINED, PLAIN)
    assert [type(error) for error in told] == [ServerTrouble]


def test_first_answers_can_come_with_joining(tmp_path):
    """They are recorded in the transaction that enrols, and not again."""
    with client(tmp_path, FakeServer(PLAIN), Clock()) as device:
        handle = device.join(PLAIN.id, entries=2, answers=["tea", "coffee"])
        assert [handle.answer(0), handle.answer(1)] == ["tea", "coffee"]
        handle.record("neither")
        assert device.join(PLAIN.id, entries=2, answers=["tea", "coffee"]).answer() == "neither"


def test_a_closed_cohort_asks_for_an_answer_of_each_entry_in_time(tmp_path):
    """Without answers, with too few, or after the first period nobody joins."""
    server, clock = FakeServer(CLOSED), Clock()
    with client(tmp_path, server, clock) as device:
        for answers in (["tea"], "te"):
            with pytest.raises(ValueError, match="one answer for each of the 2 entries"):
                device.join(CLOSED.id, entries=2, answers=answers)
        with pytest.raises(BadEnrolment, match="answer"):
            device.join(CLOSED.id, entries=2)
        with pytest.raises(ValueError, match="its answers are"):
            device.join(CLOSED.id, entries=2, answers=["tea", "cocoa"])
        clock.now = START + 60.001
        with pytest.raises(EnrolmentOver, match="closed"):
            device.join(CLOSED.id, entries=2, answers=["tea", "tea"])
        assert_nothing_joined(device)


def test_a_closed_cohort_keeps_its_answers(tmp_path):
    """A deletion is frozen; the insertion falls into the first node even if the entry joined before it."""
    asked = replace(PLAIN, closed=True)
    server, clock = FakeServer(asked), Clock(START - 500)
    with client(tmp_path, server, clock) as device:
        handle = device.join(asked.id, answers=["coffee"])
        assert handle.retract() is Recorded.FROZEN
        assert handle.answer() == "coffee"
        clock.now = LATE
        device.flush()
    assert {node for node, true in by_node(server).items() if true} == {(0, 1), (0, 2), (0, 4)}


@pytest.mark.parametrize("authority", [(), (b"short",), ("x" * 32,)])
def test_the_authority_is_at_least_one_key_of_32_bytes(tmp_path, authority):
    """A client without a pinned authority cannot be made."""
    with pytest.raises(ValueError, match="authority"):
        client(tmp_path, FakeServer(), Clock(), authority=authority)
    assert list(tmp_path.iterdir()) == []


def test_entries_that_are_one_persons_are_charged_each(tmp_path):
    """Who answers five times spends the survey's epsilon five times; entries of five people cost each of them once."""
    small = survey(grace=10**6)
    again, third = small.asking(question="Again?"), small.asking(question="A third time?")
    most = 6 * small.epsilon
    server, told = FakeServer(small, again, third), []
    with client(tmp_path, server, Clock(), max_epsilon=most, on_error=told.append) as device:
        device.join(small.id, entries=5, one_person=True)
        assert device.ledger().spent == 5 * small.epsilon
        with pytest.raises(TooCostly, match=str(7 * small.epsilon)):
            device.join(again.id, entries=2, one_person=True)
        fetched = device.join(again.id, entries=2, one_person=True, signed=None)
        device.flush()
        assert (fetched.status, [type(error) for error in told]) == (Status.REFUSED, [TooCostly])
        assert device.join(third.id, entries=70).status is Status.JOINED
        assert device.ledger().spent == most
    with client(tmp_path, server, Clock(), max_epsilon=most) as device:
        assert device.ledger().spent == most
        assert sorted(each.epsilon for each in device.ledger().surveys) == [0, small.epsilon, 5 * small.epsilon]


def test_entries_of_one_person_that_wait_for_their_survey_are_charged_each(tmp_path):
    """What the app has said as it asked holds when the survey comes, in another process."""
    small = survey(grace=10**6)
    server = FakeServer(small)
    with client(tmp_path, server, Clock()) as device:
        device.join(small.id, entries=3, one_person=True, signed=None)
    with client(tmp_path, server, Clock()) as device:
        device.flush()
        assert device.ledger().spent == 3 * small.epsilon


def test_in_development_surveys_count_nothing(tmp_path):
    """Each start of `changeling dev` makes another survey, and nobody's answers are in them; else they would count."""
    server, local = FakeServer(PLAIN, OTHER), "http://127.0.0.1:8080"
    for url in (local, "http://localhost:8080", "http://[::1]:8080"):
        with client(tmp_path / url[7:12], server, Clock(), url=url, development=True, max_epsilon=0.1) as device:
            assert device.join(PLAIN.id).status is Status.JOINED
            fetched = device.join(OTHER.id, entries=9, one_person=True, signed=None)
            device.flush()
            assert fetched.status is Status.JOINED
            assert device.ledger().spent == 0
    with client(tmp_path, server, Clock(), url=local, max_epsilon=0.1) as device, pytest.raises(TooCostly):
        device.join(PLAIN.id)


@pytest.mark.parametrize("url", ["https://statistics.example", "https://localhost.example", "https://10.0.0.1"])
def test_development_is_for_servers_on_loopback(tmp_path, url):
    """An app that is shipped so by mistake is told at its first start, and makes nothing."""
    with pytest.raises(ValueError, match="development is for servers on loopback"):
        client(tmp_path, FakeServer(), Clock(), url=url, development=True)
    assert list(tmp_path.iterdir()) == []
