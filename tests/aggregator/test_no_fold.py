"""A server that does not fold: it takes uploads and serves, and tells how long nothing has folded."""

from pathlib import Path

import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.server import MovableClock, ServerSettings, Service, health, service
from changeling_aggregator.store import Store
from changeling_protocol import Calendar

from ..protocol.examples import PINNED, survey
from .devices import Log, envelope, report
from .serving import ServerProcess, eventually, in_process

START = 1_800_000_000


def test_a_server_that_does_not_fold_tells_how_long_nobody_has(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Degraded once that is long, with 200 as it takes uploads; well again once another process has folded."""
    monkeypatch.setattr(service, "EVERY_SECONDS", 0.02)
    log = Log.of(store, survey(calendar=Calendar(START, 60, 8)))
    with in_process(Service(store, ServerSettings(PINNED, MovableClock(START + 60), folds=False))) as get:

        def troubles() -> list[dict[str, str]]:
            return [each for each in get("/readyz").json()["troubles"] if each["name"] == "fold"]

        assert troubles() == []
        log.append_reports(START + 60, [report(1)])
        monkeypatch.setattr(health, "MOST_UNFOLDED_SECONDS", 0.5)
        assert eventually(lambda: len(troubles()), 1)
        told = get("/readyz")
        assert (told.status_code, told.json()["status"]) == (200, "degraded")
        assert troubles()[0]["detail"].startswith("this server does not fold, and for ")
        assert log.tallies() == {}
        fold(store, START + 60.0)
        monkeypatch.setattr(health, "MOST_UNFOLDED_SECONDS", 60.0)
        assert eventually(troubles, [])
        assert log.tallies()[0, 1][0] == 1


@pytest.mark.heavy
def test_what_a_server_that_does_not_fold_acknowledged_in_segments_is_counted_by_another(tmp_path: Path) -> None:
    """Also what one acknowledged that was killed, though the other reads the catalogue alone."""
    options = ("--movable-clock", "--no-fold", "--segments", str(tmp_path / "segments"))
    with ServerProcess(tmp_path, *options) as server:
        key, asked = server.new_key(), server.new_survey()
        server.move_clock(asked.calendar.time(1) + asked.skew + asked.spread + 1)
        assert server.upload(envelope(asked, key, [report(1)])) == []
        store = Store.open(server.store_path)

        def waiting() -> int:
            with store.view() as view:
                return view.unfolded()

        assert eventually(waiting, 1)
        assert server.upload(envelope(asked, key, [report(1)])) == []
        server.kill()

    with ServerProcess(tmp_path, *options) as server:
        assert eventually(waiting, 2)
        assert server.fold() == {"envelopes": 0, "reports": 0, "refused": {}}
    assert fold(store, asked.calendar.time(1) + 1000.0, closing=False).reports == 2
    store.close()
