"""Attacks on retention, in rows and in segments, and on the folder that segments lie in."""

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from changeling_aggregator import Unwritable, segments
from changeling_aggregator.fold import check, fold
from changeling_aggregator.ingest import LogWriter, by_survey, writer_for
from changeling_aggregator.segments import Folder
from changeling_aggregator.store import Store
from changeling_aggregator.store.store import OLD_SECONDS, TOGETHER
from changeling_aggregator.testing import tallies_in
from changeling_protocol import Calendar, EarlyEnd, Survey, SurveyId, UnixMilliseconds, UnixSeconds
from changeling_protocol.wire import decode_upload_request

from ..protocol.examples import AUTHORITY, survey
from .devices import START, Log, body, envelope, report

PERIOD, PERIODS, SKEW = 60, 8, 5
GRACES = (90, 600, 1500)


@dataclass
class Sent:
    """An envelope that was acknowledged, with one closing. at: when, in Unix milliseconds."""

    survey: Survey
    period: int
    at: int
    sealed: bytes

    @property
    def in_time(self) -> bool:
        calendar, period = self.survey.calendar, self.period
        begins, closes = 1000 * calendar.time(period - 1), 1000 * calendar.time(period)
        return begins - 1000 * SKEW <= self.at <= closes + 1000 * self.survey.grace


@dataclass
class World:
    """A store in which surveys live, and what was acknowledged."""

    store: Store
    coins: random.Random
    in_segments: bool
    log: Log
    surveys: list[Survey]
    writers: list[LogWriter]
    now: float = START - 400.0
    sent: list[Sent] = field(default_factory=list)
    ends: dict[SurveyId, int] = field(default_factory=dict)

    def upload(self) -> None:
        """Envelopes of some surveys in one to three requests of one commit, most of them in time."""
        requests = []
        for _ in range(self.coins.randint(1, 3)):
            envelopes = []
            for asked in self.coins.sample(self.surveys, self.coins.choice((1, 1, 2, 3))):
                open_ = int((self.now - asked.calendar.start) // PERIOD) + 1
                period = min(max(open_ - self.coins.choice((0, 0, 1, 1, 2, 5, 20)), 1), PERIODS)
                sealed = envelope(asked, self.log.key, [report(period)])
                envelopes.append(sealed)
                self.sent.append(Sent(asked, period, int(self.now * 1000), sealed))
            requests += by_survey(body(*envelopes), [asked.id for asked in self.surveys])
        self.coins.choice(self.writers).write(requests, Counter(), UnixMilliseconds(int(self.now * 1000)))

    def end_early(self) -> None:
        asked = self.coins.choice(self.surveys)
        last = min(max(asked.calendar.closed(UnixSeconds(self.now)) + self.coins.randint(0, 2), 1), PERIODS)
        if asked.id not in self.ends:
            end = EarlyEnd(asked.id, last)
            with self.store.transaction() as writing:
                writing.add_early_end(end, end.signed_by(AUTHORITY))
            self.ends[asked.id] = last

    def fold(self) -> None:
        """In batches of any size, by a clock that is believed, and perhaps a little behind, or by one that is not."""
        closing = self.coins.random() < 0.7
        behind = self.coins.choice((0, 0, 0, 50) if closing else (0, 3000))
        fold(self.store, UnixSeconds(self.now - behind), batch=self.coins.choice((1, 5000)), closing=closing)
        self.look(done=closing and not behind)

    def look(self, *, done: bool) -> None:
        """Nothing is gone that is needed, and, where a fold has done all, nothing is there that is over."""
        with self.store.view() as view:
            kept = {each for row in view.kept_requests() for each in decode_upload_request(row.body)}
            sealed = {id_: each.sealed for id_, each in view.surveys().items()}
            assert view.private_keys(), "a key that has not expired is there"
        for each in self.sent:
            last = self.ends.get(each.survey.id, PERIODS)
            needed = each.in_time and sealed[each.survey.id] < each.period <= last
            assert each.sealed in kept or not needed, f"{each.period} of {each.survey.grace}s went at {self.now}"
            over = each.at + 1000 * each.survey.grace < 1000 * self.now - 1 and sealed[each.survey.id] >= each.period
            if done and over and not self.in_segments:  # of which one goes as a whole
                assert each.sealed not in kept, f"{each.period} of {each.survey.grace}s is kept at {self.now}"

    def counted(self) -> None:
        """Each closing in time is counted once, those before an early end whatever else."""
        with self.store.view() as view:
            for asked in self.surveys:
                tallies = tallies_in(view, asked)
                for period in range(1, self.ends.get(asked.id, PERIODS) + 1):
                    mine = [each for each in self.sent if (each.survey.id, each.period) == (asked.id, period)]
                    found = tallies[0, period].reports if (0, period) in tallies else 0
                    assert found == sum(each.in_time for each in mine)


def world(folder: Path, seed: int, segments: Path | None) -> World:
    coins = random.Random(seed)
    store = Store.open(folder / "server.db")
    surveys = [
        survey(calendar=Calendar(START + coins.randrange(0, 900, 30), PERIOD, PERIODS), grace=grace, skew=SKEW)
        for grace in GRACES
    ]
    log = Log.of(store, surveys[0])
    with store.transaction() as writing:
        for asked in surveys[1:]:
            writing.add_survey(asked.id, asked.signed_by(AUTHORITY))
    place = None if segments is None else str(segments)
    writers = [writer_for(store, place) for _ in range(2)]
    return World(store, coins, segments is not None, log, surveys, writers)


@pytest.mark.parametrize(("seed", "in_segments"), [(3, False), (11, True)], ids=["rows", "segments"])
def test_nothing_needed_is_deleted_and_nothing_is_kept_longer_than_its_grace(
    tmp_path: Path, seed: int, in_segments: bool
) -> None:
    """Whatever surveys end early, whoever folds how far, with a clock that is believed or in doubt."""
    here = world(tmp_path, seed, tmp_path / "segments" if in_segments else None)
    steps = {here.upload: 10, here.fold: 6, here.end_early: 0.3}
    while here.now < START + 900 + PERIOD * PERIODS + max(GRACES):
        here.now += here.coins.choice((0.001, 7, 60, 200))
        here.coins.choices([*steps], [*steps.values()])[0]()
    fold(here.store, UnixSeconds(here.now))
    here.look(done=True)
    assert check(here.store) == []
    here.counted()
    fold(here.store, UnixSeconds(here.now + 2 * max(GRACES)))
    assert here.log.kept() == []
    assert not in_segments or not [*Folder(tmp_path / "segments").list("")]
    here.store.close()


def test_two_stores_in_one_folder_delete_nothing_of_each_other(tmp_path: Path) -> None:
    """Whatever one of them puts in order, sweeps and deletes; what the other has is counted later."""
    shared = tmp_path / "segments"
    logs = [Log.of(Store.open(tmp_path / name), survey(calendar=Calendar(START, 60, 8))) for name in ("one", "two")]
    for log in logs:
        writer = writer_for(log.store, str(shared))
        for number in range(TOGETHER):
            sealed = envelope(log.survey, log.key, [report(1)])
            writer.write([(log.survey.id, body(sealed))], Counter(), UnixMilliseconds(1000 * (START + 61) + number))
    first, second = logs
    fold(first.store, UnixSeconds(START + 100))
    with first.store.turn_to_fold() as turn:
        assert turn is not None
        assert turn.sweep(UnixSeconds(time.time() + 2 * OLD_SECONDS)) == 0
    fold(first.store, UnixSeconds(START + 10_000))
    assert first.kept() == []
    fold(second.store, UnixSeconds(START + 100))
    assert [log.tallies()[0, 1][0] for log in logs] == [TOGETHER, TOGETHER]
    for log in logs:
        log.store.close()


def test_a_folder_that_changes_while_a_file_is_written_acknowledges_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a file system is unmounted while a disk is slow: the file lies where the next mount hides it."""
    folder, written = tmp_path / "segments", segments.write_durably
    writer = writer_for(store, str(folder))

    def unmounted(path: Path, content: bytes) -> None:
        folder.rename(tmp_path / "unmounted")
        folder.mkdir()
        written(path, content)

    monkeypatch.setattr(segments, "write_durably", unmounted)
    with pytest.raises(Unwritable, match="is not the one"):
        writer.write([(SurveyId(bytes(16)), body(b"x" * 100))], Counter(), UnixMilliseconds(5))
    with store.view() as view:
        assert view.segments() == []


def test_a_new_folder_is_brought_to_the_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut takes the whole folder, with all that was acknowledged in it."""
    synced: list[Path] = []
    monkeypatch.setattr(segments, "sync_folder", synced.append)
    Folder(tmp_path / "new" / "segments", make=True)
    assert {tmp_path, tmp_path / "new"} == {*synced}
    Folder(tmp_path / "new" / "segments", make=True)
    assert len(synced) == 2
