"""Made-up fleets: what their envelopes come to, in a fold and on a real server, is what their truth says, to the last
report.

Their sender waits where it is asked to, sends again what was not answered, and leaves servers of others alone.
"""

import re
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import numpy as np
import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.store import KeptTime, TokenScope
from changeling_protocol import (
    AtMost,
    Breakdown,
    Calendar,
    Group,
    KaryResponse,
    MalformedBytes,
    Node,
    Odds,
    Question,
    Refusal,
    ReleasePlan,
    StateSpace,
    Survey,
    Track,
)
from changeling_protocol.wire import (
    ErrorAnswer,
    ErrorCode,
    encode_acknowledgement,
    encode_upload_request,
    envelopes_in,
)
from changeling_reader import ServerClient
from changeling_simulations.fleet import (
    SendingFailed,
    Truth,
    Wishes,
    devices,
    make_block,
    open_periods,
    overdue_periods,
    sealed,
    send,
    sending,
)
from changeling_simulations.fleet.devices import DAY_SECONDS, arrivals, awake, spans
from changeling_simulations.fleet_command import admit
from changeling_statistics import Attendance, NodeTally, write_survey

from tests.aggregator.devices import Log, envelope, report
from tests.aggregator.serving import TOKEN, ServerHere, eventually
from tests.command_line import changeling_sim as main
from tests.command_line import invoked
from tests.protocol.examples import AUTHORITY, joint_plan, mixed, survey

DRINK = Question("drink", "What do you drink?", ("tea", "coffee", "neither"), AtMost(3))
QUESTIONS = (
    DRINK,
    Question.of_number("minutes", "How long?", ["0", "60", "120"], AtMost(2)),
    Question.of_freezing(DRINK),
)


def asking_several(calendar=Calendar(1_800_000_000, 60, 8), **fields):  # noqa: B008
    """A survey of three questions: a group for each, and one that is asked about two of them."""
    each = [
        Track(1, KaryResponse(StateSpace(len(question.answers)), Odds(9, 1)), 0, calendar.periods, question=place)
        for place, question in enumerate(QUESTIONS)
    ]
    plan = ReleasePlan((*(Group((track,)) for track in each), Group((each[0], each[2]))))
    fields = {"skew": 5, "spread": 10, "grace": 150, "minimum": 1} | fields
    return Survey.at_cost(questions=QUESTIONS, calendar=calendar, plan=plan, **fields)


EVERYTHING = {"offline": 0.2, "duplicates": 0.2, "late": 0.2, "garbage": 0.4}
HEARD, OVERDUE = Node(5, 8), Node(0, 5)


@pytest.fixture
def log(store):
    return Log.of(store, survey())


def of_all_strata(counts):
    """Those of everybody: the offset of a number is a stratum, too."""
    found = {}
    for (*key, _), each in counts.items():
        found[*key] = found[*key] + each if (*key,) in found else each
    return found


FLEETS = {
    "hierarchy": survey(grace=150),
    "mixed": survey(mixed(3, 8), grace=150),
    "joint": survey(joint_plan(3, 8), grace=150),
    "questions": asking_several(),
}


@pytest.mark.parametrize("asked", FLEETS.values(), ids=FLEETS)
@pytest.mark.parametrize("seed", range(3))
def test_a_fold_counts_what_the_truth_says(store, monkeypatch, asked, seed):
    """Every tally by slot, who was heard, and every refusal by its reason: with all that can go wrong in a fleet."""
    monkeypatch.setattr(devices, "TOLD", ())  # no log holds what is refused at the door
    now = asked.calendar.time(8) + 1
    log = Log.of(store, asked)
    block = make_block(asked, log.key, Wishes(40, HEARD, OVERDUE, seed=seed, **EVERYTHING), 0)
    bodies = [encode_upload_request([block.envelopes[place]]) for place in np.argsort(block.due, kind="stable")]
    store.append({log.stream: bodies}, 1000 * now)
    with store.transaction() as writing:
        writing.keep_time(KeptTime(1000 * now, False))  # so that what is late is counted as late
    fold(store, now + 1, closing=False)
    truth = block.truth
    assert {Refusal.LATE, Refusal.DUPLICATE, Refusal.UNOPENABLE} < {*truth.refused}
    assert log.refused() == dict(truth.refused)
    told = {key: (each.reports, each.slots.tolist()) for key, each in of_all_strata(truth.tallies).items()}
    assert log.tallies() == told
    assert {key: Attendance(*each) for key, each in log.attendance().items()} == of_all_strata(truth.attendance)


def test_strata_are_told_apart(store):
    """A survey with breakdowns has tallies of each."""
    log = Log.of(store, replace(survey(), breakdowns=(Breakdown("platform", ("a", "b")),)))
    block = make_block(log.survey, log.key, Wishes(30, HEARD, None), 0)
    assert {stratum for *_, stratum in block.truth.tallies} == {0, 1}


def test_a_seed_repeats_a_fleet_and_another_is_another(log):
    """What is expected and when, though never a sealed byte."""
    blocks = [make_block(log.survey, log.key, Wishes(20, HEARD, None, seed=seed), 0) for seed in (1, 1, 2)]
    assert [*blocks[0].due] == [*blocks[1].due] != [*blocks[2].due]
    assert blocks[0].envelopes != blocks[1].envelopes
    tallied = [{key: tally.slots.tolist() for key, tally in each.truth.tallies.items()} for each in blocks]
    assert tallied[0] == tallied[1] != tallied[2]


def test_processes_make_the_blocks_of_a_fleet_and_they_come_in_order(log):
    """By when they are due; all envelopes once, singly and many in a request; the truth is that of both blocks."""
    load = sealed(log.survey, log.key, Wishes(1100, Node(0, 1), None), processes=2)
    singly, by_ten = [*load.requests()], [*load.requests(10)]
    assert len(load) == len(singly) == load.truth.envelopes == 1100
    assert [due for due, _ in singly] == sorted(load.due.tolist())
    once = [envelope for _, body in singly for envelope in envelopes_in(body)]
    assert once == [envelope for _, body in by_ten for envelope in envelopes_in(body)]
    assert len({*once}) == 1100
    assert sum(each.heard for each in load.truth.attendance.values()) == 1100
    with pytest.raises(ValueError, match="bytes, of 1,048,576 at most"):
        next(load.requests(4096 * 100))


def test_an_offline_device_answers_later_and_no_upload_spans_more_than_may_be():
    """Its spans follow each other without gaps, and end where it was last online."""
    online = np.array([1, 0, 0, 1, 0], bool)
    assert [*spans(Node(3, 8), online)] == [Node(3, 4), Node(4, 7)]
    assert [*spans(Node(0, 130), np.zeros(130, bool))] == [Node(0, 64), Node(64, 128)]


def test_arrivals_follow_the_curve_of_the_day():
    """Shares by the hour, within six standard deviations: 24 hours fail together less often than once in 10^7 runs."""
    count = 200_000
    drawn = arrivals(np.zeros(count), DAY_SECONDS, np.random.default_rng(1))
    assert drawn.min() >= 0
    assert drawn.max() < DAY_SECONDS
    hours = np.bincount((drawn // 3600).astype(int), minlength=24)
    edges = np.linspace(0, DAY_SECONDS, 24 * 60 + 1)[:-1] + 30
    expected = awake(edges).reshape(24, 60).mean(axis=1) / 24
    assert np.abs(hours - count * expected).max() < 6 * np.sqrt(count * expected.max())


def test_what_can_be_answered_now_is_what_has_closed_and_is_not_over():
    """With a minute to spare on both sides; before and after, words say so."""
    asked = survey(calendar=Calendar(0, 1000, 8), grace=2500)
    assert open_periods(asked, 5000.5) == Node(2, 4)
    assert open_periods(asked, 5001.5) == Node(2, 5)
    assert open_periods(asked, 5001.5, lasting=1000) == Node(3, 5)
    assert overdue_periods(asked, 5000) == Node(0, 2)
    assert overdue_periods(asked, 3550) is None
    for now in (900, 20_000):
        with pytest.raises(ValueError, match="no closing of the survey can be answered now"):
            open_periods(asked, now)


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [({"devices": 0}, "at least one device"), ({"garbage": 1.0}, "garbage is a share"), ({"late": 0.1}, "nothing can")],
)
def test_wishes_that_cannot_be_are_refused(wrong, fault):
    """In words."""
    with pytest.raises(ValueError, match=fault):
        Wishes(**{"devices": 1, "heard": HEARD, "overdue": None} | wrong)


def test_a_truth_is_read_as_it_was_written(tmp_path):
    """And nothing else is."""
    truth = Truth("ab" * 16, 3, Counter(malformed=1), Counter(late=2))
    truth.tallies[0, 4, 1] = NodeTally(3, np.array([1, 2]))
    truth.attendance[1, 5, 0] = Attendance(3, 2, 1)
    path, again = tmp_path / "truth.json", tmp_path / "again.json"
    truth.write(path)
    Truth.read(path).write(again)
    assert path.read_text() == again.read_text()
    path.write_text('{"survey": 3}')
    with pytest.raises(MalformedBytes, match="no truth that"):
        Truth.read(path)


TAKEN = 200, {}, encode_acknowledgement({})


@contextmanager
def serving(answer):
    """A server on loopback; gives its URL, and each request that came with the time when it did.

    answer: gives by a request's number, from 0 on, status, headers and content; or None, which closes the connection.
    """
    came, numbering = [], threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            with numbering:
                said = answer(len(came))
                came.append((time.monotonic(), body))
            if said is None:
                self.close_connection = True
                return
            status, headers, content = said
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", came
        finally:
            server.shutdown()
            thread.join()


def requests(count, apart=0.0):
    return ((apart * number, b"%d" % number) for number in range(count))


def test_all_requests_are_sent_once_and_refusals_are_added_up():
    """By whichever connection; in their order on one of them, and not before they are due, a second taking .05 here."""
    refusing = 200, {}, encode_acknowledgement({0: Refusal.MALFORMED})
    with serving(lambda number: refusing if number % 10 == 0 else TAKEN) as (url, came):
        taken = []
        sent = send(requests(100), url, connections=7, done=taken.append)
        assert taken == [*range(1, 101)]
        assert (sent.requests, sent.unsure, sent.turned_away, len(came)) == (100, 0, 0, 100)
        begin = time.monotonic()
        send(requests(5, apart=1.0), url, connections=1, seconds_of_one=0.05)
    assert sent.told == {"malformed": 10}
    assert 0 < sent.latency(0.5) <= sent.latency(0.99)
    assert sorted(body for _, body in came[:100]) == sorted(b"%d" % number for number in range(100))
    assert [body for _, body in came[100:]] == [b"%d" % number for number in range(5)]
    assert all(at - begin >= 0.05 * number for number, (at, _) in enumerate(came[100:]))


def test_a_server_that_asks_for_patience_is_given_it_and_a_lost_answer_is_asked_for_again():
    """Nothing is sent for the second that it asked for. What was not answered may be there twice."""
    turned = [(503, {"Retry-After": "1"}, b""), (429, {"Retry-After": "0"}, b""), TAKEN, None]
    with serving(lambda number: turned[number] if number < 4 else TAKEN) as (url, came):
        sent = send(requests(3), url, connections=1)
    assert (sent.requests, sent.turned_away, sent.unsure) == (3, 2, 1)
    assert came[1][0] - came[0][0] >= 0.99
    assert sorted(body for _, body in came[2:]) == [b"0", b"1", b"1", b"2"]


def test_a_server_that_restarts_is_waited_for(monkeypatch):
    """For as long as it may be away, however often it is tried meanwhile; then it is given up."""
    monkeypatch.setattr(sending, "_PAUSE_SECONDS", 0.001)
    with serving(lambda number: None if number < 300 else TAKEN) as (url, _):
        assert send(requests(3), url, connections=2).requests == 3
    monkeypatch.setattr(sending, "_MOST_SECONDS_WITHOUT", 0.1)
    with serving(lambda _: None) as (url, _), pytest.raises(SendingFailed, match="cannot be reached for"):
        send(requests(3), url, connections=2)


def test_a_relay_and_an_address_without_surveys_are_named():
    """Neither has a status of the survey, which says whether anybody answered it."""
    asked = survey(calendar=Calendar(0, 60, 8))
    not_found = httpx.Response(404, content=ErrorAnswer(ErrorCode.NOT_FOUND, "Not Found").encode())
    known = httpx.Response(200, content=asked.signed_by(AUTHORITY))
    for answer, said in (
        (lambda request: not_found if request.url.path.endswith("/status") else known, "as a relay"),
        (lambda _: httpx.Response(404, content=b"<html>"), "has no surveys"),
    ):
        with (
            ServerClient("http://127.0.0.1:1", transport=httpx.MockTransport(answer)) as client,
            pytest.raises(ValueError, match=said),
        ):
            admit(client, asked, i_run_it=False)


def test_a_server_that_refuses_all_is_left_alone():
    """With its own words."""
    said = ErrorAnswer(ErrorCode.UNAUTHORIZED, "this needs a token").encode()
    with serving(lambda _: (401, {}, said)) as (url, came), pytest.raises(SendingFailed, match="this needs a token"):
        send(requests(50), url, connections=2)
    assert len(came) <= 2


SHARES = ("--duplicates", "5%", "--late", "5%", "--garbage", "10%", "--offline", "10%")
GRACE = 150


@pytest.fixture
def rehearsal(tmp_path, monkeypatch):
    """A server with a survey three of whose periods can be answered, and one or two no more, in survey.json here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHANGELING_TOKEN", TOKEN)
    with ServerHere(tmp_path) as server:
        server.move_clock(1_800_000_000)
        asked = server.new_survey(grace=GRACE, plan=mixed(3, 8))
        server.move_clock(asked.calendar.time(5) + 1)
        write_survey(tmp_path / "survey.json", asked)
        yield server


def ended(code, *words):
    """What a command prints, on one line; it ends with this code."""
    done = invoked(main, *words)
    said = re.sub(r"[\s│]+", " ", done.output)
    assert done.exit_code == code, said
    return said


@pytest.mark.heavy
def test_a_server_counts_what_a_fleet_sends(rehearsal, tmp_path):
    """Refusals that are told and counted, and, once all is sealed, every node, closing and histogram; and it is seen
    where anything else was sent as well."""
    to = ("--server", rehearsal.url)
    write_survey(tmp_path / "other.json", survey().asking(question="Never asked?"))
    assert "is not published on" in ended(1, "fleet", "other.json", *to)
    said = ended(0, "fleet", "survey.json", *to, "--devices", "300", *SHARES, "--truth", "truth.json", "--compare")
    for part in ("all agree", "told: malformed", "refused: late", "refused: duplicate", "refused: unopenable"):
        assert part in said
    rehearsal.move_clock(rehearsal.now + 10 * GRACE)
    assert "histograms" in ended(0, "fleet-check", "truth.json", *to)
    assert "has answers already, which a fleet would spoil" in ended(1, "fleet", "survey.json", *to)
    expected = Truth.read(tmp_path / "truth.json")
    expected.refused["late"] += 1
    expected.write(tmp_path / "truth.json")
    assert "DIFFERS" in ended(1, "fleet-check", "truth.json", *to)


@pytest.mark.heavy
def test_each_of_several_questions_is_compared(rehearsal, monkeypatch):
    """The histograms of all of them, by their names; a token that may not fold is refused before anything is sent."""
    to, asked = ("--server", rehearsal.url), asking_several(Calendar(rehearsal.now, 60, 8), minimum=3)
    rehearsal.publish(asked)
    rehearsal.move_clock(asked.calendar.time(5) + 1)
    write_survey(Path("several.json"), asked)
    rehearsal.add_token("reads", TokenScope.READ)
    monkeypatch.setenv("CHANGELING_TOKEN", "reads")
    refused = partial(ended, 1, "fleet", "several.json", *to, "--compare")
    assert eventually(lambda: "has not the scope fold" in refused(), True)
    monkeypatch.setenv("CHANGELING_TOKEN", TOKEN)
    ended(0, "fleet", "several.json", *to, "--devices", "300", *SHARES, "--truth", "truth.json")
    assert "Nothing is shown yet: a closing is once each of its nodes has 20 reports" in ended(
        0, "fleet-check", "truth.json", *to
    )
    rehearsal.move_clock(rehearsal.now + 10 * GRACE)
    said = ended(0, "fleet-check", "truth.json", *to)
    assert [each.name for each in QUESTIONS if f"histograms of {each.name}," not in said] == [], said


@pytest.mark.heavy
def test_a_wanted_rate_is_kept_and_many_envelopes_go_in_a_request(rehearsal):
    """So many requests a second: it takes as long as that, at the least."""
    words = ("--devices", "200", "--rate", "20", "--envelopes", "10", "--compare")
    said = ended(0, "fleet", "survey.json", "--server", rehearsal.url, *words)
    found = re.search(r"([\d,]+) envelopes in (\d+) requests, (\d+) a second", said).groups()
    envelopes, requests, rate = (int(each.replace(",", "")) for each in found)
    assert envelopes > 9 * (requests - 1)
    assert rate <= 26  # the first of a second's twenty are due somewhat after it begins


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((), "Missing option '--server'"),
        (("--server", "https://changeling.example"), "--i-run-this-server"),
        (("--server", "http://changeling.example"), "base URL"),
        (("--server", "http://127.0.0.1:1", "--garbage", "2"), "a rate is from 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused_in_words(tmp_path, monkeypatch, arguments, fault):
    """Before anything is made, and before anybody is asked."""
    monkeypatch.delenv("CHANGELING_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    write_survey(tmp_path / "survey.json", survey())
    refused = invoked(main, "fleet", "survey.json", *arguments)
    assert refused.exit_code in (1, 2)
    assert fault in re.sub(r"[\s│]+", " ", refused.stderr)


def answering(status, asked):
    """A server with this status of a survey."""
    return httpx.MockTransport(
        lambda request: (
            httpx.Response(200, json=status)
            if request.url.path.endswith("/status")
            else httpx.Response(200, content=asked.signed_by(AUTHORITY))
        )
    )


def test_a_fleet_is_refused_where_answers_wait_or_are_counted_and_not_shown(rehearsal):
    """An operator's token is told that there are any; a reader's is not."""
    asked = rehearsal.new_survey(minimum=5)
    path = f"/v1/surveys/{asked.id.hex()}/status"
    rehearsal.move_clock(asked.calendar.time(1) + 1)
    with ServerClient(rehearsal.url, token=TOKEN) as client:
        admit(client, asked, i_run_it=False)
        assert rehearsal.upload(envelope(asked, rehearsal.key, [report(1)])) == []
        for _ in range(2):
            with pytest.raises(ValueError, match="would spoil"):
                admit(client, asked, i_run_it=False)
            rehearsal.fold()
    told = rehearsal.http.get(path).json()
    assert (told["closings"], "any_taken" in told) == ([], False)


def test_another_machine_is_loaded_by_who_operates_it_alone():
    """Who says that it is theirs shows a token with which the server tells an operator's figures; on loopback nobody
    has to. Nobody sends a fleet where anybody has answered."""
    asked = survey(calendar=Calendar(0, 60, 8))
    silent = {"closings": []}
    told = {**silent, "refused": {}}
    for url, status, says_so, fault in (
        ("https://far.example", told, False, "--i-run-this-server"),
        ("https://far.example", silent, True, "show a token"),
        ("http://127.0.0.1:1", {"closings": [{"heard": 1}]}, False, "would spoil"),
        ("https://far.example", {**told, "any_taken": True}, True, "would spoil"),
        ("https://far.example", told, True, None),
        ("http://127.0.0.1:1", silent, False, None),
    ):
        with ServerClient(url, transport=answering(status, asked)) as client:
            if fault is None:
                admit(client, asked, i_run_it=says_so)
            else:
                with pytest.raises(ValueError, match=fault):
                    admit(client, asked, i_run_it=says_so)
    with pytest.raises(ValueError, match="use https"):
        ServerClient("http://far.example", token="secret")
