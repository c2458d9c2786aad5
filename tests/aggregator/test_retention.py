"""Retention, in rows and in segments: what is needed stays, what is over goes, what is left can be counted again."""

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from changeling_aggregator.fold import check, fold
from changeling_aggregator.ingest import by_survey, writer_for
from changeling_aggregator.segments import Folder
from changeling_aggregator.store import Store
from changeling_aggregator.testing import tallies_in
from changeling_protocol import Calendar, EarlyEnd, Survey, SurveyId, UnixMilliseconds, UnixSeconds
from changeling_protocol.wire import decode_upload_request

from ..protocol.examples import AUTHORITY, survey
from .devices import START, Log, body, envelope, report

PERIOD, PERIODS, SKEW = 60, 8, 5
GRACES = (90, 600, 1500)


@dataclass
class Sent:
    """An envelope that was acknowledged, with one closing. at: when, in Unix milliseconds. id: the closing's."""

    survey: Survey
    period: int
    id: bytes
    at: int
    sealed: bytes

    @property
    def in_time(self) -> bool:
        calendar, period = self.survey.calendar, self.period
        begins, closes = 1000 * calendar.time(period - 1), 1000 * calendar.time(period)
        return begins - 1000 * SKEW <= self.at <= closes + 1000 * self.survey.grace


class World:
    """A store in which surveys live, and what was acknowledged."""

    def __init__(self, folder: Path, seed: int, in_segments: bool) -> None:
        self.coins, self.in_segments = random.Random(seed), in_segments
        self.store = Store.open(folder / "server.db")
        begins = [START + self.coins.randrange(0, 900, 30) for _ in GRACES]
        self.surveys = [
            survey(calendar=Calendar(begin, PERIOD, PERIODS), grace=grace)
            for begin, grace in zip(begins, GRACES, strict=True)
        ]
        self.log = Log.of(self.store, self.surveys[0])
        with self.store.transaction() as writing:
            for asked in self.surveys[1:]:
                writing.add_survey(asked.id, asked.signed_by(AUTHORITY))
        place = str(folder / "segments") if in_segments else None
        self.writers = [writer_for(self.store, place) for _ in range(2)]
        self.now = START - 400.0
        self.sent: list[Sent] = []
        self.ends: dict[SurveyId, int] = {}

    def upload(self) -> None:
        """Envelopes of some surveys in one to three requests of one commit, most of them in time."""
        requests = []
        for _ in range(self.coins.randint(1, 3)):
            envelopes = []
            for asked in self.coins.sample(self.surveys, self.coins.choice((1, 1, 2, 3))):
                open_ = int((self.now - asked.calendar.start) // PERIOD) + 1
                period = min(max(open_ - self.coins.choice((0, 0, 1, 1, 2, 5, 20)), 1), PERIODS)
                said = report(period, self.coins.randrange(13), id_=bytes([self.coins.randrange(30)]) * 16)
                beside = [report(period // 2, track=1, id_=said.id)] * (period % 2 == 0)
                sealed = envelope(asked, self.log.key, [said, *beside])
                envelopes.append(sealed)
                self.sent.append(Sent(asked, period, said.id, int(self.now * 1000), sealed))
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
        assert check(self.store) == [], "what is kept gives the tallies of all open nodes"

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
                    assert found == len({each.id for each in mine if each.in_time})


@pytest.mark.parametrize(("seed", "in_segments"), [(3, False), (11, True)], ids=["rows", "segments"])
def test_nothing_needed_is_deleted_and_nothing_is_kept_longer_than_its_grace(
    tmp_path: Path, seed: int, in_segments: bool
) -> None:
    """Whatever surveys end early, whoever folds how far, with a clock that is believed or in doubt."""
    here = World(tmp_path, seed, in_segments)
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
