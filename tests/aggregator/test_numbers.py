"""The figures of a number over HTTP, for the reader and on the command line."""

import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from changeling_protocol import (
    OFFSETS,
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    Odds,
    Question,
    ReleasePlan,
    StateSpace,
    Survey,
    Track,
)
from changeling_reader import Reader, ServerAnswered

from .devices import Said, envelope, report
from .serving import Cli, ServerProcess, survey_path

MINUTES = Question.of_number("minutes", "How long?", ["0", "60", "120"], AtMost(3), unit="min")


def published(server: ServerProcess, questions: tuple[Question, ...], start: int, *, closed: bool = True) -> Survey:
    """A survey that asks these once, of a period that begins then: all of a closed cohort, else each in a group."""
    tracks = [
        Track(1, KaryResponse(StateSpace(len(each.answers), null=not closed), Odds(2**32, 1)), 0, 1, question=place)
        for place, each in enumerate(questions)
    ]
    plan = ReleasePlan((Group(tuple(tracks)),) if closed else tuple(Group((each,)) for each in tracks))
    how = {"calendar": Calendar(start, 60, 8), "skew": 5, "spread": 5, "grace": 30, "minimum": 3}
    return server.publish(Survey.at_cost(questions=questions, plan=plan, closed=closed, **how))


def told(server: ServerProcess, survey: Survey, said: Callable[[int], Iterator[tuple[int, list[Said]]]]) -> Survey:
    """What entries of each offset say of the first period, by group, until it is shown for good."""
    server.move_clock(survey.calendar.time(1) + 16)
    for offset in range(OFFSETS):
        sealed = [envelope(survey, server.key, each, group=group) for group, each in said(offset)]
        assert server.upload(*sealed) == []
    server.fold()
    server.move_clock(survey.calendar.time(1) + 60)
    server.fold()
    return survey


@pytest.fixture(scope="module")
def asked(server: ServerProcess) -> Survey:
    """Everybody holds 45 minutes, and reports the truth but for one in 2e9."""

    def said(offset: int) -> Iterator[tuple[int, list[Said]]]:
        for _ in range(8):
            yield 0, [report(1, MINUTES.rounded(45, offset).answer, stratum=offset)]

    return told(server, published(server, (MINUTES,), server.now), said)


def test_mean_median_and_shares_are_those_of_the_numbers(server: ServerProcess, asked: Survey) -> None:
    """Within what rounding adds, which is told: a sixteenth of a level's width."""
    with Reader(server.url) as reader:
        found = reader.numbers(asked.id.hex(), quantiles=[0.25, 0.5], above=[20, 90])
    assert found.rounding == 60 / 16
    assert abs(found.mean[0, 0] - 45) <= found.rounding
    assert found.mean[0, 1] <= 45 <= found.mean[0, 2]
    assert all(abs(each[0, 0] - 45) < 30 for each in found.quantiles.values())
    assert found.above[20][0, 0] > 0.9
    assert found.above[90][0, 0] < 0.1
    assert (found.unit, found.levels, found.heard.tolist()) == ("min", (0, 60, 120), [64])
    assert not np.isnan(found.mean).any()


def test_numbers_are_csv_and_a_table_too(server: ServerProcess, asked: Survey, cli: Cli) -> None:
    """A row for each period and figure; the table says what rounding adds."""
    path = f"{survey_path(asked)}/numbers"
    rows = server.http.get(path, params={"format": "csv", "above": 60}).text.splitlines()
    assert [row.split(",")[2] for row in rows] == ["figure", "mean", "quantile", "share at or above"]
    printed = cli("series", asked.id.hex(), "--server", server.url, "--mean", "--above", "60")
    assert "median" in printed
    assert "3.75 min" in printed


def test_the_frozen_among_those_that_hold_a_number_bound_what_freezing_does_to_it(
    server: ServerProcess, cli: Cli
) -> None:
    """Half of the entries hold a number, and an eighth of all, so a quarter of those, are frozen."""

    def said(offset: int) -> Iterator[tuple[int, list[Said]]]:
        level = 1 + MINUTES.rounded(45, offset).answer
        for group, symbols in enumerate((4 * [0, level], [0, 0, 0, 0, 1, 1, 1, 2])):
            for each in symbols:
                yield group, [report(1, each, track=group, stratum=offset)]

    questions = (MINUTES, Question.of_freezing(MINUTES))
    survey = told(server, published(server, questions, server.now, closed=False), said)
    with Reader(server.url) as reader:
        found = reader.numbers(survey.id.hex(), question="minutes")
    share, bound = found.freezing[0]
    assert share == pytest.approx(1 / 4)
    assert share < bound < 1
    asks = ("--mean", "--question", "minutes")
    printed = " ".join(cli("series", survey.id.hex(), "--server", server.url, *asks).split())
    assert "Freezing: 25.0% of them" in printed
    assert f"at most, and the mean by {120 * bound:.4g} min" in printed
    query = {"format": "csv", "question": "minutes"}
    rows = server.http.get(f"{survey_path(survey)}/numbers", params=query).text.splitlines()
    assert rows[0].endswith(",freezing_bound")
    assert float(rows[1].split(",")[-1]) == pytest.approx(bound)


def test_what_is_no_figure_is_refused(server: ServerProcess, asked: Survey) -> None:
    """Other quantiles, values that are none or too many; and a question with answers has no mean."""
    for query in ({"quantile": 0.51}, {"quantile": "x"}, {"above": "nan"}, {"above": [1, 2, 3, 4, 5]}):
        assert server.http.get(f"{survey_path(asked)}/numbers", params=query).status_code == 422
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(1) + 60)
    found = server.http.get(f"{survey_path(survey)}/numbers", params={"until": 1})
    assert found.status_code == 422
    assert "not for a number" in found.json()["detail"]


@pytest.fixture(scope="module")
def two(server: ServerProcess) -> Survey:
    """A survey that asks for a drink and for the minutes: all but one in 2e9 say tea, and 45 minutes."""

    def said(offset: int) -> Iterator[tuple[int, list[Said]]]:
        for _ in range(8):
            id_, minutes = os.urandom(16), MINUTES.rounded(45, offset).answer
            yield 0, [report(1, symbol, track=at, id_=id_, stratum=offset) for at, symbol in enumerate((0, minutes))]

    drink = Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(3))
    return told(server, published(server, (drink, MINUTES), server.now), said)


def test_every_method_of_the_reader_takes_a_question(server: ServerProcess, two: Survey) -> None:
    """Each answers about the question that is named, and none does where none is, of two."""
    id_ = two.id.hex()
    with Reader(server.url) as reader:
        drinks = (
            reader.histogram(id_, period=1, question="drink"),
            reader.series(id_, until=1, question="drink"),
            reader.change(id_, 0, 1, question="drink"),
            reader.windows(id_, 1, 1, question="drink"),
        )
        assert {each.question for each in drinks} == {"What do you drink?"}
        assert all(each.shares[0] == pytest.approx([1, 0], abs=1e-6) for each in drinks)
        assert abs(reader.numbers(id_, until=1, question="minutes").mean[0, 0] - 45) <= 60 / 16
        with pytest.raises(ServerAnswered, match="drink, minutes"):
            reader.series(id_)


def test_every_command_takes_a_question(server: ServerProcess, two: Survey, cli: Cli) -> None:
    """What is printed is about the question that is named."""
    for words, said in {
        "histogram --period 1 --question drink": "What do you drink?",
        "series --until 1 --question drink": "What do you drink?",
        "series --until 1 --question minutes --mean": "median",
        "change --after 0 --until 1 --question drink": "What do you drink?",
    }.items():
        command, *more = words.split()
        assert said in cli(command, two.id.hex(), "--server", server.url, *more)
