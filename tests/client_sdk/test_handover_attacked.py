"""Hand-overs attacked: what does a parcel tell by its size, and what do keys, leaving and reports meanwhile do to it."""

from array import array

import httpx
import pytest
from changeling_client import Callbacks, Recorded, Status

from .device import LATE, PLAIN, START
from .test_handover import Home, moved


class Middle:
    """Coins that are always the same, so that delays are as long."""

    def below(self, n):
        return n // 2


@pytest.mark.parametrize("keys", [(None, None), (b"o" * 32, None), (None, b"n" * 32), (b"o" * 32, b"n" * 32)])
def test_a_store_with_a_key_or_without_takes_over_from_any(tmp_path, keys):
    home = Home(tmp_path, PLAIN)
    with home.start("old", key=keys[0]) as old, home.start("new", key=keys[1]) as new:
        home.period(old, PLAIN.id, 1)
        moved(old, new)
        assert new.join(PLAIN.id).answer() == "tea"
        home.clock.now = LATE
        assert new.flush().trouble is None


@pytest.mark.parametrize("key", [None, b"o" * 32])
def test_the_size_of_a_parcel_says_nothing_of_answers(tmp_path, key):
    sizes = set()
    lives = (None, None, None), ("tea", "tea", "tea"), ("tea", "neither", "coffee")
    for number, answers in enumerate(lives):
        (tmp_path / str(number)).mkdir()
        home = Home(tmp_path / str(number), PLAIN)
        with home.start("old", Middle(), key=key) as old, home.start("new") as new:
            handle = old.join(PLAIN.id)
            for period, answer in enumerate(answers):
                if answer is None:
                    handle.retract()
                else:
                    handle.record(answer)
                home.clock.now = START + 60 * period + 80
                old.flush()
            sizes.add(len(moved(old, new)))
    assert len(sizes) == 1


def test_who_is_invited_while_it_reports_answers_nothing(tmp_path):
    home = Home(tmp_path, PLAIN)
    with home.start("old") as old, home.start("new") as new:
        home.period(old, PLAIN.id, 1)
        home.period(old, PLAIN.id, 2)
        sent = len(home.server.closings())
        home.clock.now = START + 1
        new.join(PLAIN.id).record("coffee")
        invitations = []

        def meanwhile(_):
            if not invitations:
                invitations.append(new.invite(old.hand_over_key()))

        home.clock.now = START + 140
        home.server.reply = meanwhile
        new.flush()
        home.server.reply = lambda _: None
        print(invitations, len(home.server.closings()), sent)
        assert invitations
        assert len(home.server.closings()) == sent


def test_an_entry_that_left_stays_away_after_a_hand_over(tmp_path):
    home = Home(tmp_path, PLAIN)
    with home.start("old") as old, home.start("new") as new:
        handle = old.join(PLAIN.id, entries=3)
        handle.leave(1)
        assert handle.record("tea", entry=1) is Recorded.DROPPED
        moved(old, new)
        there = new.join(PLAIN.id, entries=3)
        assert there.record("tea", entry=1) is Recorded.DROPPED
        assert there.add_entries() == range(3, 4)


def test_who_left_the_new_store_before_does_not_spoil_what_it_takes_over(tmp_path):
    home = Home(tmp_path, PLAIN)
    with home.start("old") as old, home.start("new") as new:
        old.join(PLAIN.id, entries=3).record("tea", entry=1)
        new.join(PLAIN.id, entries=3).leave(1)
        moved(old, new)
        there = new.join(PLAIN.id, entries=3)
        assert there.answer(1) == "tea"
        there.leave(1)
        assert there.record("tea", entry=1) is Recorded.DROPPED
        there.leave(1)
