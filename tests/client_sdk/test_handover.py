"""What is handed over is moved: one store answers at a time, one life goes on, and nobody else opens the parcel."""

import shutil
from pathlib import Path

import httpx
import pytest
from changeling_client import Callbacks, Recorded, Silenced, Status, WitnessTrouble
from changeling_protocol import AtMost, KaryChange, MutationSpace, Odds, Question, Track

from tests.coins import SeededCoins

from .device import GONE, LATE, PLAIN, START, TOLD, Failing, Home, asking
from .kills import (
    NOISY,
    TOGETHER,
    Steps,
    assert_each_node_is_answered_once,
    copies_of_each_step,
    counting,
    noted,
    once_each,
    sent_reports,
)

OTHER = PLAIN.asking(question="And what would you rather?")


def moved(old, new):
    """The parcel of a hand-over, taken over. Returns it."""
    parcel = old.hand_over(new.invite(old.hand_over_key()))
    new.take_over(parcel)
    return parcel


@pytest.mark.parametrize("asked", [NOISY, TOGETHER], ids=["each by itself", "joint"])
def test_two_lives_are_one(tmp_path, asked):
    """After whichever period it is handed over, both lives together draw from the same coins what one store would have
    drawn, ids, standings and slots included: so each transcript is as likely as that of a life that stays, and costs as
    much."""

    def lived(root, moves=None):
        home, coins = Home(root, asked), SeededCoins(5)
        device = home.start("old", coins)
        device.join(asked.id, entries=2)
        for number in range(1, 5):
            if moves == number - 1:
                new = home.start("new", coins, key=b"n" * 32)
                moved(device, new)
                device.close()
                device = new
            handle = home.period(device, asked.id, number, 2)
        ledger = handle.ledger()
        account = device.ledger().spent
        device.close()
        return home.server.answers(), ledger, account

    stays = lived(tmp_path / "stays")
    for at in range(4):
        assert lived(tmp_path / str(at), moves=at) == stays


def test_the_old_store_is_retired_and_the_new_one_goes_on(tmp_path):
    """With what waited, the answer that stands and what was spent; the old one keeps nothing but what it counted."""
    home = Home(tmp_path, PLAIN, OTHER)
    with home.start("old") as old, home.start("new") as new:
        before = home.period(old, PLAIN.id, 1)
        old.join(OTHER.id)
        home.server.reply = lambda _: httpx.Response(503)
        home.period(old, PLAIN.id, 2)
        home.server.reply = lambda _: None
        assert before.ledger().waiting == 1
        handle = new.join(PLAIN.id)
        parcel = moved(old, new)
        assert (before.status, before.record("coffee"), before.answer()) == (Status.MOVED, Recorded.DROPPED, None)
        assert (old.flush().sent, old.join(PLAIN.id).status) == (0, Status.MOVED)
        assert (handle.status, handle.answer(), new.ledger().spent) == (Status.JOINED, "tea", old.ledger().spent)
        assert home.period(new, PLAIN.id, 7).answer() == TOLD[6]
        assert new.flush().waiting == 0
        assert new.take_over(parcel), "once more, it changes nothing"
    closings = home.server.closings()
    assert {closing.period for closing in closings} == set(range(1, 8))
    assert len({closing.id for closing in closings}) == 7 + 6, "what was sent again has the id that it had"
    assert home.told == []


def test_handed_over_and_back_the_first_store_goes_on(tmp_path):
    """Neither witness silences anything, also of stores that are opened again, and it stays one life and one charge."""
    home = Home(tmp_path, PLAIN)
    with home.start("old") as old, home.start("new") as new:
        home.period(old, PLAIN.id, 1)
        spent = old.ledger().spent
        moved(old, new)
        home.period(new, PLAIN.id, 2)
        moved(new, old)
        assert home.period(old, PLAIN.id, 3).status is Status.JOINED
    with home.start("old") as old, home.start("new") as new:
        assert new.join(PLAIN.id).status is Status.MOVED
        home.period(old, PLAIN.id, 4)
        new.flush()
        assert old.ledger().spent == spent
    assert [closing.period for closing in home.server.closings()] == [1, 2, 3, 4]
    assert home.told == []


def test_a_parcel_opens_for_one_store_alone(tmp_path):
    """Not for another that was invited too, not changed by a bit, not from another giver, and not for a copy of the
    store that invited, which its witness does not know."""
    home = Home(tmp_path, PLAIN)
    with home.start("old") as old, home.start("new") as new, home.start("third") as third, home.start("evil") as evil:
        home.period(old, PLAIN.id, 1)
        key = old.hand_over_key()
        invitation = new.invite(key)
        assert invitation == new.invite(key)
        third.invite(key)
        evil.hand_over_key()
        forged = evil.hand_over(invitation)
        shutil.copytree(tmp_path / "new", tmp_path / "copy")
        parcel = old.hand_over(invitation)
        assert parcel == old.hand_over(invitation)
        broken = [parcel[:at] + bytes([parcel[at] ^ 1]) + parcel[at + 1 :] for at in range(0, len(parcel), 97)]
        for taker, wrong in ((third, parcel), (new, forged), *((new, each) for each in broken)):
            with pytest.raises(ValueError, match="was not packed for this store"):
                taker.take_over(wrong)
        with home.start("copy") as copy, pytest.raises(ValueError, match="no invitation of this store is open"):
            copy.take_over(parcel)
        assert new.take_over(parcel) == (PLAIN.id,)
        with pytest.raises(ValueError, match="this is no invitation"):
            old.hand_over(bytes([invitation[0] - 1]) + invitation[1:])


def test_a_backup_of_the_old_store_is_silent(tmp_path):
    """Its witness saw that it has handed over: what is put back neither answers nor hands over again."""
    home = Home(tmp_path, PLAIN)
    with home.start("old") as old:
        home.period(old, PLAIN.id, 1)
        key = old.hand_over_key()
    backup = (tmp_path / "old" / "store.db").read_bytes()
    with home.start("new") as new:
        with home.start("old") as old:
            new.take_over(old.hand_over(new.invite(key)))
        (tmp_path / "old" / "store.db").write_bytes(backup)
        sent = len(home.server.bodies)
        with home.start("old") as old:
            assert [type(error) for error in home.told] == [Silenced]
            assert home.told[0].surveys == (PLAIN.id,)
            assert home.period(old, PLAIN.id, 2).status is Status.SILENCED
        assert len(home.server.bodies) == sent
        home.period(new, PLAIN.id, 2)
    assert [closing.period for closing in home.server.closings()] == [1, 2]


def test_nothing_leaves_the_old_device_before_its_witness_knows(tmp_path):
    """While it cannot be told there is no parcel, and nothing is answered; then it is the one that was packed."""
    home, witness = Home(tmp_path, PLAIN), Failing(tmp_path / "w")
    with home.start("old", witness=witness) as old, home.start("new") as new:
        home.period(old, PLAIN.id, 1)
        invitation = new.invite(old.hand_over_key())
        witness.error = GONE
        with pytest.raises(WitnessTrouble):
            old.hand_over(invitation)
        assert old.join(PLAIN.id).status is Status.MOVED
        witness.error = None
        assert new.take_over(old.hand_over(invitation)) == (PLAIN.id,)


def test_who_is_invited_waits_and_who_has_answered_is_not_invited(tmp_path):
    """So no entry answers twice, and what was joined meanwhile gives way."""
    home = Home(tmp_path, PLAIN, OTHER)
    with home.start("old") as old, home.start("new") as new, home.start("used") as used:
        home.period(old, PLAIN.id, 1)
        new.join(PLAIN.id).record("coffee")
        invitation = new.invite(old.hand_over_key())
        home.clock.now += 60
        assert "an invitation is open" in new.flush().trouble
        parcel = old.hand_over(invitation)
        new.take_over(parcel)
        assert new.join(PLAIN.id).answer() == "tea"
        home.clock.now += 60
        assert new.flush().trouble is None
        home.period(used, PLAIN.id, 4)
        home.period(used, PLAIN.id, 5)
        with pytest.raises(ValueError, match="has itself answered"):
            used.invite(old.hand_over_key())
        assert used.invite(None) == b""


def live(root: Path, steps: Steps) -> None:
    """A life of both devices: each action is done once at least, and both devices report in every period."""
    home, carried = Home(root, NOISY), root / "carried"
    options = {"transport": noted(root / "sent", home.server)}

    def flush():
        with home.start("old", **options) as old, home.start("new", **options) as new:
            old.flush()
            new.flush()

    def record(name, answer):
        with home.start(name, **options) as device:
            device.join(NOISY.id, entries=2).record(answer)

    def hand_over():
        with home.start("new", **options) as new, counting(steps), home.start("old", **options) as old:
            carried.write_bytes(old.hand_over(new.invite(old.hand_over_key())))

    def take_over():
        with counting(steps), home.start("new", **options) as new:
            new.take_over(carried.read_bytes())

    actions = [
        (1, lambda: record("old", "tea")),
        (80, flush),
        (100, hand_over),
        (140, flush),
        (141, take_over),
        (142, lambda: record("new", "coffee")),
        (200, flush),
        (260, flush),
    ]
    once_each(root, home.clock, [(START + moment, act) for moment, act in actions])
    assert home.told == []


@pytest.mark.heavy
def test_killed_at_any_write_there_is_one_store_that_answers(tmp_path):
    """For every statement and every write of a witness: from what is on disk there, each node of each entry is
    answered once, or the same answer sent again, by the one store or the other; and none is lost."""
    lives = 0
    for root in copies_of_each_step(tmp_path, live):
        live(root, Steps())
        assert_each_node_is_answered_once(sent_reports(root, NOISY), NOISY, 2)
        lives += 1
    assert lives > 25


MANY = asking(
    *(Track(1, KaryChange(MutationSpace(1), Odds(2, 1)), 0, 2, question=at) for at in range(40)),
    questions=[Question(f"question {at}", "?", ("yes",), AtMost(3)) for at in range(40)],
    periods=2,
)
SIZES = {
    "answers": (PLAIN, [[("", each)] for each in (None, "tea", "neither")]),
    "questions": (MANY, [[(each.name, "yes") for each in MANY.questions[:most]] for most in (0, 13, 40)]),
}


class Middle:
    """Coins that are always the same, so that delays take as many bytes."""

    def below(self, n):
        return n // 2


@pytest.mark.parametrize(
    ("name", "key", "new_key"),
    [("answers", None, b"o" * 32), ("answers", b"o" * 32, None), ("questions", None, b"o" * 32)],
    ids=["encrypts", "opens", "of many questions"],
)
def test_the_size_of_a_parcel_says_nothing_of_answers(tmp_path, name, key, new_key):
    """Nor of how many of many questions were answered; what was kept under a key or none goes on under none or one."""
    made, lives = SIZES[name]
    sizes = set()
    for number, answers in enumerate(lives):
        home = Home(tmp_path / str(number), made)
        with home.start("old", Middle(), key=key) as old, home.start("new", key=new_key) as new:
            old.join(made.id)
            for question, answer in answers:
                asked = old.join(made.id).question(question or made.asked[0].name)
                asked.retract() if answer is None else asked.record(answer)
            old.at(START + 80).flush()
            sizes.add(len(moved(old, new)))
            for question, answer in answers:
                assert new.join(made.id).question(question or made.asked[0].name).answer() == answer
            assert new.at(LATE).flush().trouble is None
    assert len(sizes) == 1


def test_who_is_invited_while_it_reports_answers_nothing(tmp_path):
    """Or one who moves would answer the same nodes from both stores, for one charge."""
    home, invitations = Home(tmp_path, PLAIN), []
    with home.start("old") as old, home.start("new") as new:
        home.period(old, PLAIN.id, 1)
        home.period(old, PLAIN.id, 2)
        home.clock.now = START + 1
        new.join(PLAIN.id)
        home.server.reply = lambda _: invitations.append(new.invite(old.hand_over_key()))
        new.at(START + 140).flush()
        assert invitations
        assert len(home.server.closings()) == 2


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
    with home.start("one", witness=host) as device:
        device.at(LATE).flush()
    assert kept
    assert home.server.closings() == []


@pytest.mark.parametrize("how", ["the old one goes on", "both left, once more", "both left, and back"])
def test_two_lives_that_both_answered_are_charged_both_and_once(tmp_path, how):
    """A new store that had left keeps its own life; the old one's is added, whether it had left or not. No further
    parcel adds any of it again, nor one back to the old store."""
    home = Home(tmp_path, PLAIN, OTHER)
    with home.start("old") as old, home.start("new") as new:
        for device in (old, new):
            home.clock.now = START + 1
            home.period(device, PLAIN.id, 1)
            if device is new or how.startswith("both"):
                device.leave(PLAIN.id)
        assert len(home.server.closings()) == 2
        lives = old.ledger().spent + new.ledger().spent
        moved(old, new)
        assert (new.join(PLAIN.id).status, new.ledger().spent) == (Status.LEFT, lives)
        giver, taker = (new, old) if how.endswith("back") else (old, new)
        giver.join(OTHER.id)
        giver.flush()
        moved(giver, taker)
        assert taker.join(PLAIN.id).status is Status.LEFT
        assert taker.ledger().spent == lives + lives / 2


@pytest.mark.parametrize("one_person", [False, True], ids=["an app's", "a person's"])
def test_an_entry_that_answered_and_left_stays_charged_where_the_others_give_way(tmp_path, one_person):
    """Its life was told already; what goes on in its survey is one life more."""
    home = Home(tmp_path, PLAIN)
    with home.start("old") as old, home.start("new") as new:
        for device in (new, old):
            home.clock.now = START + 1
            device.join(PLAIN.id, one_person=one_person)
            home.period(device, PLAIN.id, 1)
        assert len(home.server.closings()) == 2
        handle = new.join(PLAIN.id)
        handle.add_entries()
        handle.leave(0)
        lives = old.ledger().spent + new.ledger().spent
        moved(old, new)
        assert new.ledger().spent == lives


@pytest.mark.parametrize("at", ["new", "old"])
def test_a_survey_whose_only_entry_answered_and_left_is_not_forgotten_for_the_sake_of_the_budget(tmp_path, at):
    """What was told is charged, whether it was told here or is in the parcel."""
    home, most = Home(tmp_path, PLAIN, OTHER), float(PLAIN.epsilon + OTHER.epsilon) - 1
    with home.start("old") as old, home.start("new", max_epsilon=most) as new:
        here, there = (new, old) if at == "new" else (old, new)
        home.period(here, PLAIN.id, 1)
        here.join(PLAIN.id).leave(0)
        there.join(OTHER.id)
        there.flush()
        moved(old, new)
        assert new.ledger().spent >= PLAIN.epsilon
        assert new.join(PLAIN.id).status is Status.JOINED
