"""Servers of one store whose folds fail, whose machines sleep, and whose clocks are set at the worst of moments."""

from collections.abc import Callable

import pytest
from changeling_aggregator.server.guarded_clock import LISTENING_SECONDS, TOLD_FOR_SECONDS, Doubt
from changeling_aggregator.store.clock import kept_time

from .devices import Log, envelope, report
from .test_guarded_clock import GRACE
from .test_told_time import TICK, Server, log, place, run, sealed, start

__all__ = ["log", "place", "start"]


def fail(*_: object, **__: object) -> None:
    raise OSError("the fold fails")


def test_a_server_whose_fold_fails_still_tells_the_time(
    log: Log, start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one that starts ahead would hear nobody, and seal what the other still takes uploads for."""
    right = start()
    run(60, right)
    monkeypatch.setattr(right.service.folding, "_fold", fail)
    wrong = start(60 + 45 * 60)
    for _ in range(round((LISTENING_SECONDS + TOLD_FOR_SECONDS) / TICK)):
        for server in (wrong, right):
            server.machine.run(TICK)
        with pytest.raises(OSError, match="the fold fails"):
            right.service.folding.fold_now()
        right.take(envelope(log.survey, log.key, [report(1)]))
        wrong.service.folding.fold_now()
    assert wrong.doubt is Doubt.AHEAD
    assert sealed(log) == 0
    assert log.refused() == {}


def test_what_was_told_while_a_machine_slept_puts_its_clock_in_no_doubt(log: Log, start: Callable[..., Server]) -> None:
    """Another server told the time and was stopped; this one wakes half an hour later, and its clock is right.

    The process's own clock may stand meanwhile, as Linux has it.
    """
    asleep, other = start(), start()
    run(60, asleep, other)
    run(60, other)
    asleep.machine.run(60 + 1800)
    asleep.service.folding.fold_now()
    assert asleep.doubt is None
    run(TICK, asleep)
    with log.store.reading() as connection:
        assert kept_time(connection).told == pytest.approx(1000 * asleep.machine.wall, abs=61_000)
    run(GRACE, asleep)
    assert sealed(log) > 0
