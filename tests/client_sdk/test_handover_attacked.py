"""Hand-overs attacked: by their size, by keys, by who left, and by what goes on meanwhile."""

import pytest
from changeling_client import Callbacks, Recorded, Status

from .device import LATE, PLAIN, START
from .test_handover import OTHER, Home, moved

KEYS = (None, b"o" * 32)


class Middle:
    """Coins that are always the same, so that delays take as many bytes."""

    def below(self, n):
        return n // 2


@pytest.mark.parametrize("new_key", KEYS, ids=["to plain", "to encrypted"])
@pytest.mark.parametrize("key", KEYS, ids=["plain", "encrypted"])
def test_the_size_of_a_parcel_says_nothing_of_answers(tmp_path, key, new_key):
    """And what was kept under a key or under none goes on under another or none."""
    sizes = set()
    for number, answers in enumerate([(None, None, None), ("tea", "tea", "tea"), ("tea", "neither", "coffee")]):
        (tmp_path / str(number)).mkdir()
        home = Home(tmp_path / str(number), PLAIN)
        with home.start("old", Middle(), key=key) as old, home.start("new", key=new_key) as new:
            handle = old.join(PLAIN.id)
            for period, answer in enumerate(answers):
                _ = handle.retract() if answer is None else handle.record(answer)
                home.clock.now = START + 60 * period + 80
                old.flush()
            sizes.add(len(moved(old, new)))
            assert new.join(PLAIN.id).answer() == answers[-1]
            home.clock.now = LATE
            assert new.flush().trouble is None
    assert len(sizes) == 1


def test_who_is_invited_while_it_reports_answers_nothing(tmp_path):
    """Or one who moves would answer the same nodes from both stores, for one charge."""
    home, invitations = Home(tmp_path, PLAIN), []
    with home.start("old") as old, home.start("new") as new:
        home.period(old, PLAIN.id, 1)
        home.period(old, PLAIN.id, 2)
        home.clock.now = START + 1
        new.join(PLAIN.id)
        home.clock.now = START + 140
        home.server.reply = lambda _: invitations or invitations.append(new.invite(old.hand_over_key()))
        home.server.reply = lambda _, meanwhile=home.server.reply: meanwhile(_) and None
        new.flush()
        assert invitations
        assert len(home.server.closings()) == 2


def test_who_left_stays_away_and_who_stays_goes_on_through_a_hand_over(tmp_path):
    """Numbers that left in the old store are not given again; those that left in the new one, whose entries gave way,
    are those of the old one's entries, which can leave themselves."""
    home = Home(tmp_path, PLAIN)
    with home.start("old") as old, home.start("new") as new:
        old.join(PLAIN.id, entries=3).record("tea", entry=1)
        old.join(PLAIN.id).leave(2)
        new.join(PLAIN.id, entries=3).leave(1)
        moved(old, new)
        handle = new.join(PLAIN.id, entries=3)
        assert (handle.answer(1), handle.add_entries()) == ("tea", range(3, 4))
        handle.leave(1)
        assert {handle.record("tea", entry) for entry in (1, 2)} == {Recorded.DROPPED}


def test_two_lives_that_both_answered_are_charged_both_and_once(tmp_path):
    """A new store that had left keeps its own life; the old one's is added, and no further parcel adds it again."""
    home = Home(tmp_path, PLAIN, OTHER)
    with home.start("old") as old, home.start("new") as new:
        home.period(old, PLAIN.id, 1)
        home.clock.now = START + 1
        home.period(new, PLAIN.id, 1)
        new.leave(PLAIN.id)
        lives = old.ledger().spent + new.ledger().spent
        moved(old, new)
        assert (new.join(PLAIN.id).status, new.ledger().spent) == (Status.LEFT, lives)
        old.join(OTHER.id)
        old.flush()
        more = old.ledger().spent - lives / 2
        moved(old, new)
        assert new.ledger().spent == lives + more


@pytest.mark.parametrize("back", [False, True], ids=["once more", "and back"])
def test_two_lives_that_both_left_are_charged_both_and_once(tmp_path, back):
    """Where each store had answered and left by itself; neither a further parcel nor one back to the old store adds any
    of it again."""
    home = Home(tmp_path, PLAIN, OTHER)
    with home.start("old") as old, home.start("new") as new:
        for device in (old, new):
            home.clock.now = START + 1
            home.period(device, PLAIN.id, 1)
            device.leave(PLAIN.id)
        assert len(home.server.closings()) == 2
        lives = old.ledger().spent + new.ledger().spent
        moved(old, new)
        assert new.ledger().spent == lives
        giver, taker = (new, old) if back else (old, new)
        giver.join(OTHER.id)
        giver.flush()
        moved(giver, taker)
        assert taker.join(PLAIN.id).status is Status.LEFT
        assert taker.ledger().spent == lives + lives / 2


def test_a_survey_that_was_put_in_anothers_place_is_not_taken_over(tmp_path):
    """Not even from the store that was invited: what is recorded goes into the survey that its id names, or nowhere."""
    home = Home(tmp_path, PLAIN)
    with home.start("old") as old, home.start("new") as new:
        home.period(old, PLAIN.id, 1)
        with old._device.store.transaction() as db:
            db.execute("UPDATE surveys SET payload = ?", (OTHER.payload,))
        with pytest.raises(ValueError, match="another one than it says"):
            moved(old, new)
        assert new.join(PLAIN.id).answer() is None, "nothing of the parcel is kept"


def test_nothing_is_not_handed_over_in_place_of_what_was(tmp_path):
    """After another invitation the first one's parcel is still to be had, and no empty one takes its place."""
    home = Home(tmp_path, PLAIN)
    with home.start("old") as old, home.start("new") as new, home.start("third") as third:
        home.period(old, PLAIN.id, 1)
        first, second = new.invite(old.hand_over_key()), third.invite(old.hand_over_key())
        old.hand_over(first)
        with pytest.raises(ValueError, match="handed over already"):
            old.hand_over(second)
        new.take_over(old.hand_over(first))
        assert new.join(PLAIN.id).answer() == "tea"


def test_what_was_left_while_no_witness_could_be_told_does_not_come_back(tmp_path):
    """A backup of before the leaving is another store than the one that the witness first hears of."""
    home, kept, fails = Home(tmp_path, PLAIN), [], [1]
    host = Callbacks(lambda: kept[-1] if kept else None, lambda seen: kept.append(seen) if not fails else 1 / 0)
    with home.start("one", witness=host) as device:
        device.join(PLAIN.id)
    backup = (tmp_path / "one" / "store.db").read_bytes()
    with home.start("one", witness=host) as device:
        device.leave(PLAIN.id)
    fails.clear()
    home.start("one", witness=host).close()
    (tmp_path / "one" / "store.db").write_bytes(backup)
    home.clock.now = LATE
    with home.start("one", witness=host) as device:
        device.flush()
    assert kept
    assert home.server.closings() == []
