"""Whatever is killed, and whenever: what was acknowledged counts exactly once, and nothing else counts."""

import pytest

from benchmarks.server_kills import killed, terminated


@pytest.mark.heavy
def test_killed_servers_and_folds_lose_nothing_and_count_nothing_twice() -> None:
    """Nine SIGKILLs of a server and of its fold while four senders send."""
    figures = killed(9)
    assert figures.pop("4_acknowledged") > 20  # type: ignore[operator]
    assert figures.pop("4_kills_of_server") >= 2  # type: ignore[operator]
    assert figures.pop("4_kills_of_fold") >= 2  # type: ignore[operator]
    assert set(figures.values()) == {0}


@pytest.mark.heavy
def test_sigterm_under_load_loses_nothing() -> None:
    """Out within five seconds, with a backlog and senders."""
    figures = terminated()
    assert figures.pop("4_sigterm_seconds") < 5  # type: ignore[operator]
    assert figures.pop("4_sigterm_acknowledged") > 20  # type: ignore[operator]
    assert set(figures.values()) == {0}
