"""Joining: because the app names the survey, with the authority's signature, within what may be spent."""

from dataclasses import replace
from decimal import Decimal

import pytest
from changeling_client import (
    BadEnrolment,
    BadSurvey,
    CannotJoin,
    EnrolmentOver,
    Recorded,
    ServerTrouble,
    Status,
    TooCostly,
    WrongSurvey,
)
from changeling_protocol import (
    AtMost,
    BadSignature,
    KaryResponse,
    MalformedBytes,
    MutationSpace,
    ProtocolError,
    StateSpace,
    Survey,
    TimeBounded,
    Track,
    UnderstatedEpsilon,
    decode,
    encode,
    signed,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..protocol.examples import AUTHORITY, PINNED, survey
from .device import LATE, PLAIN, START, TRUTHFUL, URL, all_nodes, asking, by_node, on_disk

OTHER = PLAIN.asking(question="And what would you rather?")
LOCAL = "http://127.0.0.1:8080"
CLOSED = survey(closed=True, grace=10**6)
STRANGER, OTHERS = (Ed25519PrivateKey.from_private_bytes(each * 32) for each in (b"s", b"o"))


def assert_nothing_joined(device):
    assert device.ledger().spent == 0
    assert device.flush().sent == 0
    assert Status.JOINED not in {survey.status for survey in device.ledger().surveys}


def test_joining_again_is_the_same_and_asks_nobody(begin):
    """A survey is fetched once; joining again, from another process too, gives the same entries."""
    device, server, _ = begin(PLAIN)
    device.join(PLAIN.id, entries=2, signed=None).record("tea", 1)
    device.flush()
    assert device.join(PLAIN.id.hex(), entries=2, signed=None).answer(1) == "tea"
    device = begin(after=device).device
    handle = device.join(PLAIN.id, entries=2, signed=None)
    device.flush()
    assert (handle.answer(1), handle.survey, device.ledger().spent) == ("tea", PLAIN, PLAIN.epsilon)
    assert server.paths() == [f"/v1/surveys/{PLAIN.id.hex()}"]


@pytest.mark.parametrize("known", [False, True], ids=["asked", "joined"])
def test_when_the_server_moves_what_waits_goes_to_the_new_one(begin, known):
    """A mistyped URL in a release, or another domain, costs no device: it follows what the app names."""
    device = begin().device
    device.join(PLAIN.id, signed=PLAIN.signed_by(AUTHORITY) if known else None).record("tea")
    device.flush()
    device.close()
    device, server, _ = begin(PLAIN, now=START + 80, url="https://elsewhere.example")
    device.flush()
    assert device.join(PLAIN.id, signed=None).status is Status.JOINED
    assert device.ledger().spent == PLAIN.epsilon
    assert server.reports()


def test_a_survey_with_any_byte_changed_is_refused(begin):
    """Every single changed byte is noticed, and nothing is joined."""
    encoded = PLAIN.signed_by(AUTHORITY)
    device = begin().device
    for at in range(len(encoded)):
        tampered = encoded[:at] + bytes([encoded[at] ^ (0x01, 0x80)[at % 2]]) + encoded[at + 1 :]
        with pytest.raises(BadSurvey) as refused:
            device.join(PLAIN.id, signed=tampered)
        assert isinstance(refused.value.__cause__, BadSignature | MalformedBytes)
    assert_nothing_joined(device)


def stated(**fields):
    """The survey with these fields in place of its own, signed by the authority."""
    own = decode(PLAIN.payload)
    del own["kind"], own["version"]
    return signed(Survey.kind, {**own, **fields}, AUTHORITY)


OLD = encode({**decode(PLAIN.payload), "version": 1})
WRONG = {
    "by another authority": (PLAIN.signed_by(OTHERS), BadSurvey, "none of the pinned authority keys", BadSignature),
    "less than it costs": (
        stated(epsilon_micro=PLAIN.epsilon_micro - 1),
        BadSurvey,
        "states epsilon",
        UnderstatedEpsilon,
    ),
    "another version": (
        encode({"payload": OLD, "signature": AUTHORITY.sign(OLD)}),
        BadSurvey,
        "has protocol version 1; this is version 3",
        ProtocolError,
    ),
    "another survey": (OTHER.signed_by(AUTHORITY), WrongSurvey, OTHER.id.hex(), type(None)),
    **{f"{bad[:9]!r}": (bad, BadSurvey, "", ProtocolError) for bad in (b"", b"\xc1", b"no survey", PLAIN.payload)},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_survey_that_is_wrong_is_refused_by_name(tmp_path, begin, name):
    """Bytes that the app brings at once, with the protocol's own error behind; of the server's the handle and
    `on_error` tell, once. Nothing is joined, whoever signed it; of the answers that waited no byte is left in any file,
    and later ones are dropped and counted. Any of the pinned keys may have signed."""
    brought, error, words, cause = WRONG[name]
    told, pinned = [], (STRANGER.public_key().public_bytes_raw(), *PINNED)
    device, server, _ = begin(PLAIN, on_error=told.append, authority=pinned)
    server.signed[PLAIN.id.hex()] = brought
    with pytest.raises(error, match=words or None) as refused:
        device.join(PLAIN.id, signed=brought)
    assert isinstance(refused.value.__cause__, cause)
    handle = device.join(PLAIN.id, signed=None)
    assert (handle.status, handle.reason, told) == (Status.ASKED, "", [])
    for answer in ("an answer of forty letters or thereabouts", "coffee"):
        assert handle.record(answer) is Recorded.PENDING
    assert b"forty letters" in on_disk(tmp_path)
    assert_nothing_joined(device)
    device.flush()
    assert (handle.status, handle.answer(), handle.survey) == (Status.REFUSED, None, None)
    assert [type(each) for each in told] == [error]
    assert handle.reason == f"{error.__name__}: {told[0]}"
    assert words in handle.reason
    assert handle.record("coffee") is Recorded.DROPPED
    assert device.ledger().drops == {"not-taking-part": 1}
    assert not [word for word in (b"forty letters", b"coffee") if word in on_disk(tmp_path)]
    for asked, key in ((OTHER, AUTHORITY), (PLAIN.asking(question="By the next key?"), STRANGER)):
        assert device.join(asked.id, signed=asked.signed_by(key)).survey == asked


def test_the_sum_over_all_surveys_stays_within_max_epsilon(begin):
    """Two surveys fit exactly, also where the bound is a float that is a little less; a third does not, and is not
    joined."""
    small = replace(survey(grace=10**6), epsilon_micro=13_200_000)
    most = float(2 * small.epsilon)
    assert Decimal(most) < 2 * small.epsilon
    again, third = small.asking(question="Again?"), small.asking(question="A third time?")
    device = begin(small, again, third, max_epsilon=most).device
    device.join(small.id, entries=7)
    device.join(again.id)
    with pytest.raises(TooCostly, match=str(3 * small.epsilon)):
        device.join(third.id)
    assert device.ledger().spent == 2 * small.epsilon
    device = begin(after=device, max_epsilon=Decimal(1)).device
    assert device.join(small.id, entries=7).status is Status.JOINED
    assert device.ledger().spent == 2 * small.epsilon
    with pytest.raises(CannotJoin):
        device.join(third.id)


def test_the_number_of_entries_only_grows(begin):
    """Joining with more adds those that lack, also before the survey is known; with fewer it changes nothing."""
    device = begin(PLAIN).device
    with pytest.raises(ValueError, match="with 0 to 65536 entries, got -1"):
        device.join(PLAIN.id, entries=-1)
    for named in ("ab", b"\0" * 15, "zz" * 16):
        with pytest.raises(ValueError, match="16 bytes"):
            device.join(named)
    handle = device.join(PLAIN.id, entries=2, signed=None)
    assert device.join(PLAIN.id, entries=3, signed=None).record("tea", 2) is Recorded.PENDING
    assert handle.add_entries(answers=["coffee"]) == range(3, 4)
    device.join(PLAIN.id, entries=1)
    assert [handle.answer(entry) for entry in range(4)] == [None, None, "tea", "coffee"]
    assert device.join(PLAIN.id, entries=5).add_entries() == range(5, 6)
    with pytest.raises(ValueError, match="has 6; got 65531 more"):
        handle.add_entries(65_531)


def test_joining_after_the_end_is_refused_but_coming_back_is_not(begin):
    """A calendar that has ended takes no new entries; an entry that was there can still send what waits."""
    device, _, clock = begin(PLAIN, OTHER)
    device.join(PLAIN.id)
    clock.now = LATE
    with pytest.raises(EnrolmentOver):
        device.join(OTHER.id)
    assert device.join(PLAIN.id).survey == PLAIN
    assert device.flush().sent == 8


def test_a_server_that_cannot_be_asked_is_told_from_one_that_refuses(begin):
    """`join` waits for nobody; a flush tells what failed, and asks again the next time. Nothing is refused for it."""
    told = []
    device, server, _ = begin(on_error=told.append)
    handle = device.join(PLAIN.id)
    assert server.requests == []
    sentence = f"{URL} does not know the survey {PLAIN.id.hex()}: the server answered with status 404"
    assert [device.flush().trouble for _ in range(2)] == [sentence] * 2
    server.reachable = False
    assert "ConnectError" in device.flush().trouble
    assert (handle.status, handle.survey, handle.ledger()) == (Status.ASKED, None, None)
    server.reachable = True
    server.signed[PLAIN.id.hex()] = PLAIN.signed_by(AUTHORITY)
    assert device.flush().trouble is None
    assert (handle.status, handle.survey) == (Status.JOINED, PLAIN)
    assert [type(error) for error in told] == [ServerTrouble]


def test_a_closed_cohort_asks_for_an_answer_of_each_entry_in_time(begin):
    """Without answers, with too few, or after the first period nobody joins."""
    device, _, clock = begin(CLOSED)
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


@pytest.mark.parametrize("begins", [0, 2])
@pytest.mark.parametrize("space", [MutationSpace(3), StateSpace(3), StateSpace(3, null=False)])
def test_nobody_is_inserted_late_into_a_closed_cohort(joined, space, begins):
    """The survey is asked for in its first period, and comes in the third, as does the first answer: the cost counts
    with answers from the first period on, and who takes part does not hang on when the group that is drawn reports."""
    asked = asking(Track(1, KaryResponse(space, TRUTHFUL), begins, 8), constraint=AtMost(2), closed=True)
    handle, device, server, clock = joined(asked, signed=None, now=START + 1, strict=False)
    clock.now = START + 130
    handle.record("tea")
    device.flush()
    device.at(LATE).flush()
    assert handle.status is Status.REFUSED
    assert not server.bodies


@pytest.mark.parametrize("space", [MutationSpace(3), StateSpace(3, null=False)])
def test_a_clock_that_was_ahead_before_a_closed_cohort_was_known_inserts_nobody_late(joined, space):
    """The first answer is given while the clock is ahead, and then another by the right clock, in the first period. It
    is given in time; the constraint must not freeze it in favour of the one before, which the fourth period holds."""
    asked = asking(Track(1, KaryResponse(space, TRUTHFUL), 0, 8), constraint=AtMost(1), closed=True)
    handle, device, server, clock = joined(asked, signed=None, now=START + 1, strict=False)
    for seconds, answer in ((200, "tea"), (30, "neither")):
        clock.now = START + seconds
        handle.record(answer)
    device.at(LATE).flush()
    device.at(LATE).flush()
    if handle.status is not Status.REFUSED:
        assert {node for node, true in by_node(server).items() if true or not space.reports_changes} >= {(0, 1)}


def test_a_closed_cohort_keeps_its_answers(joined):
    """They are recorded in the transaction that enrols, and not again. A deletion is frozen; the insertion falls into
    the first node even if the entry joined before it."""
    asked = replace(PLAIN, closed=True)
    handle, device, server, _ = joined(asked, answers=["coffee"], now=START - 500)
    assert handle.retract() is Recorded.FROZEN
    assert device.join(asked.id, answers=["tea"]).answer() == "coffee"
    device.at(LATE).flush()
    assert {node for node, true in by_node(server).items() if true} == {(0, 1), (0, 2), (0, 4)}


def test_entries_that_are_one_persons_are_charged_each(begin):
    """Who answers five times spends the survey's epsilon five times; entries of five people cost each of them once.
    What the app has said as it asked holds when the survey comes, in another process."""
    small = survey(grace=10**6)
    again, third = small.asking(question="Again?"), small.asking(question="A third time?")
    most, told = 6 * small.epsilon, []
    device, server, _ = begin(small, again, third, max_epsilon=most, on_error=told.append)
    device.join(small.id, entries=5, one_person=True)
    assert device.ledger().spent == 5 * small.epsilon
    with pytest.raises(TooCostly, match=str(7 * small.epsilon)):
        device.join(again.id, entries=2, one_person=True)
    fetched = device.join(again.id, entries=2, one_person=True, signed=None)
    device.flush()
    assert (fetched.status, [type(error) for error in told]) == (Status.REFUSED, [TooCostly])
    assert device.join(third.id, entries=70).status is Status.JOINED
    with pytest.raises(TooCostly):
        device.join(small.id).add_entries()
    account = begin(after=device, max_epsilon=most).device.ledger()
    assert account.spent == most
    assert sorted(each.epsilon for each in account.surveys) == [0, small.epsilon, 5 * small.epsilon]
    later = begin(server=server, folder="later").device
    later.join(small.id, entries=3, one_person=True, signed=None)
    later = begin(after=later, folder="later").device
    later.flush()
    assert later.ledger().spent == 3 * small.epsilon
    later.join(small.id).add_entries()
    assert later.ledger().spent == 4 * small.epsilon


def test_in_development_surveys_count_nothing(begin):
    """Each start of `changeling dev` makes another survey, and nobody's answers are in them; else they would count."""
    for url in (LOCAL, "http://localhost:8080", "http://[::1]:8080"):
        device = begin(PLAIN, OTHER, folder=url[7:12], url=url, development=True, max_epsilon=0.1).device
        assert device.join(PLAIN.id).status is Status.JOINED
        fetched = device.join(OTHER.id, entries=9, one_person=True, signed=None)
        device.flush()
        assert (fetched.status, device.ledger().spent) == (Status.JOINED, 0)
    with pytest.raises(TooCostly):
        begin(PLAIN, url=LOCAL, max_epsilon=0.1).device.join(PLAIN.id)


def test_what_counts_nothing_stays_on_loopback(begin):
    """A survey that was joined for development, and so cost nothing, is not answered anywhere else afterwards."""
    device = begin(PLAIN, url=LOCAL, development=True).device
    device.join(PLAIN.id).record("tea")
    assert device.ledger().spent == 0
    device, server, _ = begin(PLAIN, now=START + 80, url="https://elsewhere.example")
    assert device.flush().sent == 1
    assert {str(request.url)[: len(LOCAL)] for request in server.requests} == {LOCAL}


@pytest.mark.parametrize("brings", [True, False])
def test_a_survey_that_declares_a_relay_counts_in_development_too(begin, brings):
    """Its answers would go elsewhere, to the relay."""
    relayed = replace(PLAIN, relay="https://relay.example")
    device, server, _ = begin(relayed, url=LOCAL, development=True)
    device.join(relayed.id, **({} if brings else {"signed": None})).record("tea")
    device.at(START + 80).flush()
    device.flush()
    assert server.bodies
    assert device.ledger().spent == relayed.epsilon


CHANGES = MutationSpace(3)
YEAR = 365 * 86_400


def test_what_was_recorded_before_the_survey_was_known_is_what_is_reported(begin):
    """No network for five periods, the app started anew in each: nothing raises, nothing is lost, no call asks anybody;
    and once the survey comes, in the middle of a period, each node holds the change that was made in it."""
    told = []
    device, server, clock = begin(PLAIN, on_error=told.append)
    server.reachable = False
    for period, answer in ((0.5, "tea"), (2.5, "coffee"), (4.2, None)):
        clock.now = START + 60 * period
        device = begin(after=device, on_error=told.append).device
        handle = device.join(PLAIN.id, signed=None)
        before = len(server.requests)
        for recorded in (Recorded.PENDING, Recorded.UNCHANGED):
            assert (handle.record(answer) if answer else handle.retract()) is recorded
        assert (handle.answer(), handle.status, handle.survey, handle.ledger()) == (answer, Status.ASKED, None, None)
        assert len(server.requests) == before
        assert "ConnectError" in device.flush().trouble
    device = begin(after=device, on_error=told.append).device
    handle = device.join(PLAIN.id, signed=None)
    server.reachable = True
    assert device.at(START + 60 * 4.6).flush().trouble is None
    assert (handle.status, handle.answer()) == (Status.JOINED, None)
    assert [handle.record(answer) for answer in ("neither", "tea")] == [Recorded.FROZEN] * 2
    device.at(LATE).flush()
    moves = {(0, 1): (0, 1), (2, 3): (1, 2), (4, 5): (2, 0), (0, 2): (0, 1), (2, 4): (1, 2), (4, 6): (2, 0),
             (0, 4): (0, 2), (4, 8): (2, 0)}  # fmt: skip
    assert by_node(server) == {node: CHANGES.index(*moves.get(node, (0, 0))) for node in all_nodes(PLAIN)}
    assert told == []


def test_an_entry_takes_part_from_when_the_app_asked(joined):
    """Not from when the survey came: what closed in between is answered as well, late. In the period that straddles
    the arrival the records before and after it count together: the first is a mutation too, the last is what counts."""
    handle, device, server, clock = joined(PLAIN, signed=None, now=START + 70)
    clock.now = START + 60 * 5 + 20
    assert handle.record("tea") is Recorded.PENDING
    device.flush()
    assert {node for node in by_node(server) if node[1] - node[0] == 1} == {(1, 2), (2, 3), (3, 4), (4, 5)}
    later = [handle.record(answer) for answer in ("coffee", "neither", "tea")]
    assert later == [Recorded.COUNTED, Recorded.COUNTED, Recorded.FROZEN]
    device.at(LATE).flush()
    moved = {node for node, true in by_node(server).items() if true}
    assert moved == {(5, 6), (4, 6), (4, 8)}
    assert by_node(server)[5, 6] == CHANGES.index(0, 3)


def test_once_the_survey_is_known_the_words_and_times_of_what_waited_are_gone(tmp_path, joined):
    """What stays of them is what open nodes need."""
    handle, device, _, clock = joined(PLAIN, signed=None, now=START + 1)
    handle.record("no answer of the survey, so nowhere in it")
    clock.now = START + 17.123
    handle.record("tea")
    moment = int(1000 * clock.now).to_bytes(8)
    assert moment in on_disk(tmp_path)
    device.at(START + 18).flush()
    content = on_disk(tmp_path)
    assert moment not in content
    assert b"so nowhere in it" not in content
    assert handle.answer() == "tea"


@pytest.mark.parametrize("strict", [True, False])
def test_wrong_answers_that_waited_are_drops_that_are_counted(begin, strict):
    """Nobody could know them for wrong when they were recorded; the right ones around them count."""
    device = begin(PLAIN, strict=strict).device
    handle = device.join(PLAIN.id, entries=2, signed=None, answers=["cocoa", "tea"])
    for answer in ("tea", "milk", "coffee", "beer"):
        assert handle.record(answer) is Recorded.PENDING
    device.flush()
    assert device.ledger().drops == {"wrong-answer": 3}
    assert [handle.answer(0), handle.answer(1)] == ["coffee", "tea"]
    assert [handle.record("neither"), handle.record("tea")] == [Recorded.COUNTED, Recorded.FROZEN]


def test_before_the_survey_is_known_each_question_keeps_its_newest_answer_however_many_wait(tmp_path, begin):
    """One question's many records crowd out none of another, nor of one that is answered when no room is left; and they
    leave a small file."""
    questions = tuple(replace(PLAIN.questions[0], name=name) for name in ("drink", "meal", "snack"))
    asked = asking(*(replace(PLAIN.plan.tracks[0], question=place) for place in range(3)), questions=questions)
    device = begin(asked).device
    handle = device.join(asked.id, signed=None)
    handle.question("meal").record("coffee")
    for number in range(300):
        handle.question("drink").record(("tea", "coffee")[number % 2])
    for answer in ("tea", "neither"):
        handle.question("snack").record(answer)
    handle.question("drink").record("neither")
    newest = {"drink": "neither", "meal": "coffee", "snack": "neither"}
    assert {name: handle.question(name).answer() for name in newest} == newest
    assert device.flush().trouble is None
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 200_000
    del newest["drink"]  # its constraint froze it long before
    assert {name: handle.question(name).answer() for name in newest} == newest


@pytest.mark.parametrize("bundled", [False, True])
def test_a_clock_that_is_a_year_ahead_before_the_survey_is_known_loses_nothing(begin, bundled):
    """Neither if the server gives the survey but tells no time: then it is asked again. What was recorded by the wrong
    clock counts as recorded now."""
    asked = PLAIN.asking(constraint=TimeBounded(100), epsilon_micro=10**9)
    told = []
    device, server, clock = begin(asked, now=START + 1, on_error=told.append)
    server.reachable = False
    handle = device.join(asked.id, signed=None)
    assert handle.record("tea") is Recorded.PENDING
    device.at(START + YEAR).flush()
    assert handle.record("coffee") is Recorded.PENDING
    server.reachable, server.headers = True, {}
    if bundled:
        device.join(asked.id)
    else:
        assert device.flush().trouble == "the server told no time"
        assert handle.status is Status.ASKED
    clock.now, server.headers = START + 80, None
    device.flush()
    assert (handle.status, handle.answer(), told) == (Status.JOINED, "coffee", [])
    device.at(LATE).flush()
    moved = {node: true for node, true in by_node(server).items() if true and node[1] - node[0] == 1}
    assert moved == {(0, 1): CHANGES.index(0, 1), (1, 2): CHANGES.index(1, 2)}


def test_a_flush_for_which_there_is_nothing_to_do_writes_little(tmp_path, joined):
    """However many entries a store has, it is rewritten only after something of answers was overwritten or sent."""
    handle, device, *_ = joined(PLAIN, entries=1000, now=START + 1)
    device.at(START + 80).flush()
    device.flush()

    def written():
        with device.store.transaction() as db:
            db.execute("PRAGMA wal_autocheckpoint = 0")
        before = file.stat().st_mtime_ns
        device.flush()
        return file.stat().st_mtime_ns != before, log.stat().st_size

    file, log = tmp_path / "store.db", tmp_path / "store.db-wal"
    assert written() == (False, log.stat().st_size)
    assert log.stat().st_size < 65_536 < file.stat().st_size
    handle.record("coffee")
    assert written() == (True, 0), "what was recorded has overwritten the answer before"
