"""The audit that an app's tests can run: it passes an app that gives nothing away, and names what another does."""

from dataclasses import replace
from itertools import product

import pytest
from changeling_client.testing import Household, audit, let_report, make_survey
from changeling_protocol import Calendar

from .test_questions import asked

DAYS = 3
SURVEY = make_survey(answers=("tea", "coffee"), periods=4, epsilon=8)
LIVES = {"never": {}, "early": {0: "tea"}, "late": {1: "tea", 2: "coffee"}}
"""On which days which answer is given."""


def careful(home: Household, life) -> None:
    """Joins at the first launch; a thread reports."""
    with home.client() as client:
        survey = client.join(home.server.publish(SURVEY))
        for day in range(DAYS):
            if day in life:
                survey.record(life[day])
            let_report(client, home.clock)
        client.flush()


def joins_late(home: Household, life) -> None:
    """Joins as the first answer is given."""
    home.server.publish(SURVEY)
    with home.client() as client:
        for day in range(DAYS):
            if day in life:
                client.join(SURVEY.id).record(life[day])
            let_report(client, home.clock)


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


def leaves(home: Household, life) -> None:
    """Leaves the survey when coffee is drunk."""
    with home.client() as client:
        survey = client.join(home.server.publish(SURVEY))
        for day in range(DAYS):
            if day in life:
                survey.record(life[day])
                if life[day] == "coffee":
                    client.leave(SURVEY.id)
            let_report(client, home.clock)


def starts_again(home: Household, life) -> None:
    """Is started anew every day."""
    home.server.publish(SURVEY)
    for day in range(DAYS):
        with home.client() as client:
            survey = client.join(SURVEY.id)
            if day in life:
                survey.record(life[day])
            let_report(client, home.clock)


@pytest.mark.parametrize("app", [careful, starts_again])
def test_an_app_that_gives_nothing_away_passes(app):
    """Whatever is answered, and when, its requests are the same at the same times, to the byte."""
    assert audit(app, LIVES.values()) == []


@pytest.mark.parametrize(
    ("app", "lives"),
    [(joins_late, [2, 3]), (flushes_at_once, [2, 3]), (leaves, [3])],
    ids=lambda each: str(each)[:14],
)
def test_an_app_that_gives_its_answers_away_is_told_where(app, lives):
    """The number of each life that differs, and in which request."""
    found = audit(app, LIVES.values())
    assert [int(each.split()[1]) for each in found] == lives
    assert all("/v1/" in each for each in found)


def test_the_fixture_fails_a_test_by_saying_what_differs(changeling_audit):
    """So an app's CI says it."""
    lives = [LIVES["never"], LIVES["early"]]
    changeling_audit(careful, lives)
    with pytest.raises(AssertionError, match="life 2 differs in request 1"):
        changeling_audit(joins_late, lives)


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

    assert audit(app, product(drinks, minutes)) == []
