"""Estimates are made a few at a time, and once for what they are made of."""

from threading import Barrier, Event
from typing import Any

import pytest
from changeling_aggregator.errors import Overloaded
from changeling_aggregator.server import estimates, estimating
from changeling_aggregator.server.estimating import Estimating
from changeling_aggregator.server.service import Service, Settings
from changeling_aggregator.store import Store
from changeling_protocol import Calendar

from ..protocol.examples import PINNED, survey
from .devices import Log, report
from .serving import in_process


def test_no_more_than_two_at_a_time_and_few_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one too many is told to come again; once they are done there is room again."""
    monkeypatch.setattr(estimating, "MOST_WAITING", 3)
    making, go_on, begun = Estimating(), Event(), Barrier(3)

    def slow() -> bytes:
        begun.wait(10)
        go_on.wait(10)
        return b"done"

    waiting = [making.submit(slow) for _ in range(2)]
    begun.wait(10)
    waiting += [making.submit(lambda: b"done") for _ in range(3)]
    with pytest.raises(Overloaded):
        making.submit(lambda: b"")
    assert not any(future.done() for future in waiting)
    go_on.set()
    assert [future.result(10) for future in waiting] == [b"done"] * 5
    assert making.submit(lambda: b"again").result(10) == b"again"
    making.close()


def test_an_answer_is_made_once_even_by_two_who_ask_at_once() -> None:
    """The second waits for the first; an error is told to both and not kept."""
    making, go_on, made = Estimating(), Event(), []

    def make() -> bytes:
        made.append(1)
        go_on.wait(10)
        if len(made) == 1:
            raise ValueError("no")
        return b"answer"

    both = [making.submit(lambda: making.once("key", make)) for _ in range(2)]
    go_on.set()
    assert {type(future.exception(10)) for future in both} <= {ValueError, type(None)}
    assert making.once("key", make) == making.once("key", make) == b"answer"
    assert len(made) == 2
    making.close()


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of answers that exceed it together the one asked for longest ago goes."""
    monkeypatch.setattr(estimating, "MOST_KEPT_BYTES", 25)
    making, made = Estimating(), []

    def ask(key: str) -> None:
        making.once(key, lambda: made.append(key) or bytes(10))  # type: ignore[func-returns-value]

    for key in ("a", "b", "a", "c", "a", "b"):
        ask(key)
    assert made == ["a", "b", "c", "b"]
    making.close()


def test_the_same_question_is_answered_once_until_the_answer_changes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again, nothing is solved again; a new report, another period or another question is another answer."""
    log = Log.of(store, survey(calendar=Calendar(1_800_000_000, 60, 8), grace=600))
    clock = [1_800_000_200.0]
    solved = []

    def counted(*arguments: Any, **options: Any) -> Any:
        solved.append(arguments)
        return estimates_series(*arguments, **options)

    estimates_series = estimates.series
    monkeypatch.setattr(estimates, "series", counted)
    log.append_reports(clock[0], [report(node, 3) for node in (1, 2, 3)])
    service = Service(store, Settings(PINNED, None, lambda: clock[0]))
    path = f"/v1/surveys/{log.survey.id.hex()}/series"
    with in_process(service) as get:
        service.folding.fold_now()
        first = get(path)
        assert get(path).content == first.content
        assert len(solved) == 1
        assert get(path + "?until=1").json()["series"] == first.json()["series"][:1]
        assert len(solved) == 2
        log.append_reports(clock[0], [report(2, 3)])
        service.folding.fold_now()
        assert get(path).json()["series"] != first.json()["series"]
        assert len(solved) == 3
        log.append_reports(clock[0], [report(4, 3)])
        clock[0] += 60
        service.folding.fold_now()
        assert len(get(path).json()["series"]) == len(first.json()["series"]) + 1
