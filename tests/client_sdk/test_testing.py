"""What an app's tests are given: a clock, a server, surveys, a client and fixtures; an audit of what it sends."""

import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from changeling_client import Status
from changeling_client.testing import FakeServer, Household, audit, let_report, make_client, make_survey
from changeling_protocol import AtMost, Calendar, Question

from .test_recording import asked

ROOT = Path(__file__).parents[2]
MOST_SECONDS = 4.0
"""Of processor time: some four times what a year takes on an idle machine; on a busy one it is 2.5."""


def ran(days, folder, seed=0, **survey):
    """The server of a client that recorded, and reported, once a day."""
    server = FakeServer()
    with make_client(folder, server, seed=seed) as client:
        handle = client.join(server.publish(make_survey(**survey)))
        for day in range(days):
            handle.record("tea" if day < days // 2 else "coffee")
            server.clock.advance(days=1)
            client.flush()
    return server


@pytest.mark.timed
@pytest.mark.heavy
def test_a_year_of_daily_reports_takes_a_second_or_two(tmp_path):
    """Of processor time; the bound leaves room for a busy machine."""
    asked = (
        "import time; from tests.client_sdk.test_testing import ran; ran(1, 'a'); began = time.process_time(); "
        "ran(365, 'b'); print(time.process_time() - began)"
    )
    words = [sys.executable, "-c", f"import sys; sys.path.append({str(ROOT)!r}); {asked}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert float(done.stdout) < MOST_SECONDS


def test_the_fixtures_import_nothing_until_they_are_used():
    """Neither the SDK nor httpx: a host's pytest starts as it did."""
    asked = "import sys, pytest; before = set(sys.modules); import changeling_pytest; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["changeling_pytest"]


def test_one_seed_gives_the_same_reports_in_every_run(tmp_path):
    """And another seed gives others, where the survey's odds are real."""
    symbols = [
        [report.symbol for report in ran(12, tmp_path / name, seed, epsilon=4).reports]
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert symbols[0] == symbols[1] != symbols[2]
    assert [len(each) for each in symbols] == [12, 12, 12]


@pytest.mark.parametrize("trouble", [lambda server: server.fail_with(503, retry_after=60), FakeServer.go_offline])
def test_trouble_keeps_what_is_due_and_after_it_all_of_it_comes(kit, trouble):
    """Each report once, those of the offline spell in one upload."""
    client, server = kit()
    handle = client.join(server.publish(make_survey(periods=10)))
    handle.record("tea")
    client.flush()
    trouble(server)
    for _ in range(3):
        server.clock.advance(days=1)
        flushed = client.flush()
        assert (flushed.sent, flushed.trouble is None) == (0, False)
    assert server.reports == []
    server.recover()
    server.clock.advance(hours=1)
    assert client.flush().sent == 3
    assert [report.says for report in server.last_reports] == ["from no answer to tea", "no change", "no change"]
    assert server.reports == server.last_reports


def test_a_survey_that_ends_early_is_ended_on_the_device_once_its_server_says_so(kit):
    """After the grace of its last period: until then all is taken as before."""
    client, server = kit()
    asked = make_survey(periods=10, grace=86_400)
    handle = client.join(server.publish(asked))
    handle.record("tea")
    server.end_early(asked.id, 2)
    for day in range(1, 6):
        server.clock.advance(days=1)
        flushed = client.flush()
        assert (flushed.sent == 1) is (day <= 2)
        assert (handle.status is Status.JOINED) is (day <= 2)
    assert handle.status is Status.ENDED
    assert handle.reason == ""


def test_an_entry_that_never_was_is_not_left_and_what_was_left_says_so(kit):
    """A mistyped number is told, and nobody is taken for withdrawn."""
    client, server = kit()
    handle = client.join(server.publish(make_survey(periods=10)), entries=2)
    for number in (2, -1):
        with pytest.raises(ValueError, match="numbered 0 to 1"):
            handle.leave(number)
    handle.leave(1)
    client.leave(handle.id)
    assert "was left" in handle.reason


def test_a_second_client_of_the_folder_goes_on_and_a_restored_store_is_silenced(tmp_path, kit):
    """The witness stands beside the store, so that an app can test what a backup does."""
    client, server = kit()
    survey = server.publish(make_survey(periods=10))
    client.join(survey).record("tea")
    client.flush()
    client.close()
    backup = (tmp_path / "changeling.db").read_bytes()
    for _ in range(2):
        server.clock.advance(days=1)
        client, _ = kit(server)
        assert client.join(survey).answer() == "tea"
        assert client.flush().sent == 1
        client.close()
    (tmp_path / "changeling.db").write_bytes(backup)
    client, _ = kit(server)
    assert client.join(survey).status is Status.SILENCED


DAYS = 3
SURVEY = make_survey(answers=("tea", "coffee"), periods=4, epsilon=8)
LIVES = {"never": {}, "early": {0: "tea"}, "late": {1: "tea", 2: "coffee"}}
"""On which days which answer is given."""


def careful(home: Household, life, *, joins_late=False, leaves_for=None, starts_again=False) -> None:
    """Joins at the first launch, or as the first answer is given; a thread reports.

    leaves_for: the answer with which it leaves the survey. starts_again: whether it is started anew every day.
    """
    home.server.publish(SURVEY)
    client = home.client()
    for day in range(DAYS):
        if starts_again:
            client.close()
            client = home.client()
        if not joins_late:
            client.join(SURVEY.id)
        if day in life:
            client.join(SURVEY.id).record(life[day])
            if life[day] == leaves_for:
                client.leave(SURVEY.id)
        let_report(client, home.clock)
    client.close()


def flushes_at_once(home: Household, life) -> None:
    """Flushes when an answer is given, and by a timer as well."""
    with home.client() as client:
        survey = client.join(home.server.publish(SURVEY))
        for day in range(DAYS):
            if day in life:
                survey.record(life[day])
                client.flush()
            home.clock.advance(days=0.5)
            client.flush()
            home.clock.advance(days=0.5)


@pytest.mark.parametrize(
    ("app", "lives"),
    [(flushes_at_once, [2, 3]), (partial(careful, leaves_for="coffee"), [3])],
    ids=["flushes at once", "leaves"],
)
def test_an_app_that_gives_its_answers_away_is_told_where(app, lives):
    """The number of each life that differs, and in which request."""
    found = audit(app, LIVES.values())
    assert [int(each.split()[1]) for each in found] == lives
    assert all("/v1/" in each for each in found)


@pytest.mark.parametrize("app", [careful, partial(careful, starts_again=True)], ids=["once", "started anew"])
def test_an_app_that_gives_nothing_away_passes_and_another_fails_by_what_differs(changeling_audit, app):
    """Whatever is answered, and when, the requests are the same at the same times, to the byte; so an app's CI says."""
    changeling_audit(app, LIVES.values())
    with pytest.raises(AssertionError, match="life 2 differs in request 1"):
        changeling_audit(partial(app, joins_late=True), [LIVES["never"], LIVES["early"]])


@pytest.mark.parametrize("epsilon", [None, 8])
def test_a_survey_of_several_questions_asks_all_of_them(kit, epsilon):
    """Each is answered by its name; the reports tell the truth about each, or cost what they may."""
    questions = [
        Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(3)),
        Question.of_number("minutes", "How long?", ["0", "60"], AtMost(2), unit="min"),
    ]
    made = make_survey(question=questions, epsilon=epsilon, periods=7)
    assert epsilon is None or 0.9 * epsilon < made.epsilon <= epsilon
    client, server = kit()
    handle = client.join(server.publish(made))
    handle.question("drink").record("tea")
    handle.question("minutes").record(60)
    server.clock.advance(days=1)
    client.flush()
    said = {each.says for each in server.last_reports}
    assert len(server.last_reports) == 2
    assert epsilon is not None or said == {"from no answer to tea", "from no answer to 60 min"}


@pytest.mark.parametrize("joint", [False, True], ids=["each by itself", "drawn together"])
def test_nobody_who_watches_tells_which_question_was_answered_nor_whether_a_number_moved(joint):
    """Lives with all, some and none of the answers: the same requests at the same times, to the byte."""
    made = asked(joint=joint)
    made = replace(made, calendar=Calendar(SURVEY.calendar.start, 86_400, 4), skew=60, spread=3600, grace=7 * 86_400)
    drinks, minutes = ({}, {0: "tea", 2: "coffee"}), ({}, {0: 3.5, 1: 29.9, 2: 700})

    def app(home: Household, life) -> None:
        with home.client() as client:
            survey = client.join(home.server.publish(made))
            for day in range(DAYS):
                for question, answers in zip(("drink", "minutes"), life, strict=True):
                    if day in answers:
                        survey.question(question).record(answers[day])
                let_report(client, home.clock)
            client.flush()

    assert audit(app, [*product(drinks[:1], minutes), (drinks[1], minutes[0])]) == []
