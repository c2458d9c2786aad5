"""A store that was put back, copied or lost is silent for good; whatever happens, no closing is answered twice."""

import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from changeling_client import Callbacks, Recorded, Sidecar, Silenced, Status, TooCostly, WitnessTrouble
from changeling_client.witness import Seen, default_folder, leave_out_of_backups
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.coins import SeededCoins

from .device import GONE, PLAIN, START, Failing, Home, client

OTHER = PLAIN.asking(question="And what would you rather?")
ENTRIES = 2


class Killed(BaseException):
    """As if the process were gone."""


class Phone(Home):
    """A device's folders: the store, and its witness beside it; backups of both; and a server that remembers."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, PLAIN, OTHER)
        self.store, self.sidecar = root / "data", root / "witness"
        self._numbers = count()

    def start(self, **options):
        self.witness = Failing(self.sidecar)
        return super().start("data", witness=self.witness, **options)

    def install(self):
        """The first start, in which the app joins; both entries answer every closing from then on."""
        self.clock.now = START + 1
        with self.start() as device:
            device.join(PLAIN.id, entries=ENTRIES)

    def period(self, number, answer="tea"):
        """A start of the app in this period, in which it records and reports."""
        self.clock.now = START + 60 * number + 20
        with self.start() as device:
            handle = device.join(PLAIN.id, entries=ENTRIES)
            handle.record(answer)
            return device.flush(), handle.status

    def backup(self, folder):
        copy = self.root / f"backup {next(self._numbers)}"
        if folder.exists():
            shutil.copytree(folder, copy)
        return copy

    def put_back(self, folder, copy):
        """As a file-level copy does; what was there before is still somewhere, so that no file gets its number."""
        if folder.exists():
            folder.rename(self.root / f"old {next(self._numbers)}")
        if copy.exists():
            shutil.copytree(copy, folder)

    def assert_silent(self):
        """For good: it sends nothing more, in no later period, and says so once."""
        sent = len(self.server.bodies)
        for number in (5, 6):
            flushed, status = self.period(number)
            assert (flushed.sent, flushed.waiting, status) == (0, 0, Status.SILENCED)
        with self.start() as device:
            handle = device.join(PLAIN.id, entries=ENTRIES)
            assert (handle.record("coffee"), handle.answer(), handle.survey) == (Recorded.DROPPED, None, None)
            assert device.join(OTHER.id).record("tea") is Recorded.COUNTED
            self.clock.now += 60
            assert device.flush().sent == 1
        assert len(self.server.bodies) == sent + 1
        assert [type(error) for error in self.told] == [Silenced]
        assert PLAIN.id.hex() in str(self.told[0])


@pytest.fixture
def phone(tmp_path):
    phone = Phone(tmp_path)
    phone.install()
    return phone


@pytest.mark.parametrize("there", ["nothing", "a witness of its own"])
def test_a_store_from_another_device_is_silent(phone, tmp_path, there):
    """Whether its witness came along or not, and whether there is one on that device."""
    phone.period(1)
    another = Phone(tmp_path / "another")
    another.server, another.clock = phone.server, phone.clock
    if there != "nothing":
        another.install()
        another.period(1)
    another.put_back(another.store, phone.store)
    another.assert_silent()


def witnessed(change):
    """Changes the bytes of the witness."""

    def done(phone):
        (phone.sidecar / "witness").write_bytes(change((phone.sidecar / "witness").read_bytes()))

    return done


def lost_again(phone):
    """A fresh store is silent also of what the one before the last had joined."""
    for _ in range(2):
        shutil.rmtree(phone.store)
        phone.start().close()
    shutil.rmtree(phone.store)
    phone.told.clear()


def ahead(phone):
    """Killed at the worst moment a store is ahead by one; nothing that we do leaves it ahead by two."""
    with closing(sqlite3.connect(phone.store / "store.db")) as store:
        store.execute("UPDATE device SET generation = generation + 2")
        store.commit()


def put_back(*names, renamed=True):
    """A period goes by after these were copied; then the copies take their place.

    renamed: as a file-level copy does it, so that no file gets its number; else the file system may give its files the
    numbers that they had before.
    """

    def done(phone):
        folders = [getattr(phone, name) for name in names]
        copies = [phone.backup(folder) for folder in folders]
        phone.period(2)
        for folder, copy in zip(folders, copies, strict=True):
            if not renamed:
                shutil.rmtree(folder)
            phone.put_back(folder, copy)

    return done


def newest_put_back_after(phone):
    """Nobody knows what was done with the older one in between."""
    copy = phone.backup(phone.store)
    phone.period(2)
    newest = phone.backup(phone.store)
    phone.put_back(phone.store, copy)
    _, status = phone.period(3)
    assert status is Status.SILENCED
    phone.put_back(phone.store, newest)
    phone.told.clear()


LIVES = {
    "the newest put back after an older one": newest_put_back_after,
    "the store put back": put_back("store"),
    "store and sidecar put back": put_back("store", "sidecar"),
    "store and sidecar deleted and put back": put_back("store", "sidecar", renamed=False),
    "the store lost": lambda phone: shutil.rmtree(phone.store),
    "the store lost again and again": lost_again,
    "the store ahead by more than a step": ahead,
    "the sidecar's folder lost": lambda phone: shutil.rmtree(phone.sidecar),
    "its file lost": lambda phone: (phone.sidecar / "witness").unlink(),
    "its tag lost": lambda phone: (phone.sidecar / "CACHEDIR.TAG").unlink(),
    "its end lost": witnessed(lambda seen: seen[:-3]),
    "all of it lost": witnessed(lambda _: b""),
    "its sense lost": witnessed(lambda seen: seen[:16] + b"\x94\x01\xc4\x00\x00\x91\x91\x00"),
}


@pytest.mark.parametrize("name", LIVES)
def test_a_store_that_is_not_the_one_that_was_witnessed_is_silent(phone, name):
    """Put back, lost or edited, itself or its sidecar, deleted, truncated or overwritten: nobody knows then how far the
    store was. Surveys that it did not know are joined."""
    phone.period(1)
    LIVES[name](phone)
    phone.assert_silent()


def test_a_sidecar_that_cannot_be_read_now_is_trouble(tmp_path):
    """And not the witness of no store, which would silence this one."""
    (tmp_path / "CACHEDIR.TAG").touch()
    (tmp_path / "witness").mkdir()
    with pytest.raises(WitnessTrouble, match="cannot be read"):
        Sidecar(tmp_path).read()


def test_a_host_whose_callbacks_fail_loses_nothing(begin):
    """Whatever they raise, nothing is raised into the app, records are kept, nothing leaves that the host was not told,
    and afterwards all goes on."""
    kept, broken, told = [], [], []

    def read():
        if "read" in broken:
            raise KeyError("a secret of the host's")
        return kept[-1] if kept else None

    def write(seen):
        if "write" in broken:
            raise OSError("no keychain")
        kept.append(seen)

    options = {"witness": Callbacks(read, write), "on_error": told.append}
    device, _, clock = begin(PLAIN, now=START + 1, **options)
    handle, sent = device.join(PLAIN.id), 0
    for period, broken in enumerate((["read"], [], ["write"], ["read", "write"], []), 1):
        flushed = device.at(START + 60 * period + 20).flush()
        sent += flushed.sent
        assert (flushed.trouble is None) == (not broken)
        assert flushed.sent == 0 or not broken
        assert "secret" not in str(flushed.trouble)
    assert (sent, handle.ledger().answered_period) == (5, 5)
    broken = ["read"]
    device, *_ = begin(after=device, **options)
    assert [type(error) for error in told] == [WitnessTrouble]
    assert device.join(PLAIN.id).record("coffee") is Recorded.COUNTED
    broken = []
    assert device.at(clock.now + 60).flush().sent == 1
    assert device.join(PLAIN.id).status is Status.JOINED
    assert PLAIN.id in kept[-1]


def test_a_witness_that_waits_for_the_apps_own_thread_does_not_hold_up_what_that_thread_does(begin):
    """A host may keep it where only its main thread goes. That thread records, looks and leaves meanwhile, and none of
    it waits for the witness."""
    calls, kept, main, waited = SimpleQueue(), [], threading.get_ident(), []

    def there(act):
        """Does something in the main thread, and waits until it is done."""
        if threading.get_ident() == main:
            return act()
        done = threading.Event()
        calls.put((act, done))
        assert done.wait(20), "the main thread never came to it"
        return None

    witness = Callbacks(
        lambda: (there(lambda: None), kept[-1] if kept else None)[1], lambda seen: there(lambda: kept.append(seen))
    )
    device, server, clock = begin(PLAIN, OTHER, now=START + 1, witness=witness)
    handles = [device.join(each.id) for each in (PLAIN, OTHER)]
    clock.now = START + 80
    flush = threading.Thread(target=device.flush)
    flush.start()
    for turn in range(1000):
        with suppress(Empty):
            act, done = calls.get(timeout=0.01)
            began = time.monotonic()
            handles[0].record(("tea", "coffee")[turn % 2])
            assert device.ledger().surveys
            if turn == 2:
                device.leave(OTHER.id)
            waited.append(time.monotonic() - began)
            act()
            done.set()
        if not flush.is_alive():
            break
    flush.join()
    assert len(waited) >= 3, "it was asked before, and told and asked after the drawing"
    assert max(waited) < 5
    assert device.flush().trouble is None
    seen = Seen.decode(kept[-1])
    with device.store.transaction() as db:
        assert db.execute("SELECT generation, witnessed FROM device").fetchone() == (seen.generation, 1)
    assert [each.period for each in server.closings()].count(1) >= 1


MARKS = st.integers(0, 255).map(lambda number: bytes([number]) * 16)


@settings(max_examples=50)
@given(MARKS, MARKS, MARKS, st.integers(0, 2**40), st.frozensets(MARKS, max_size=3))
def test_an_account_of_a_store_is_read_as_it_was_written(mark, before, new, generation, surveys):
    """And admits its store as it was, or one drawing further from there; not a twin that drew as often."""
    assume(len({mark, before, new}) == 3)
    seen = Seen(mark + before, generation, {id_: number for number, id_ in enumerate(surveys)})
    assert Seen.decode(seen.encode()) == seen
    assert [ahead for ahead in range(-3, 4) if seen.admits(mark + before, generation + ahead)] == [0]
    assert [ahead for ahead in range(-3, 4) if seen.admits(new + mark, generation + ahead)] == [1]
    assert not seen.admits(new + before, generation)
    assert not seen.admits(new + new, generation + 1)


def test_a_device_that_is_killed_between_answering_and_telling_goes_on(phone):
    """What it had answered is sent at the next start, as it was; nothing is answered again."""
    phone.period(1)
    phone.clock.now = START + 60 * 2 + 20
    with phone.start() as device:
        phone.witness.error = Killed()
        with suppress(Killed):
            device.flush()
        phone.witness.error = None
        with device.store.transaction() as db:
            ids = {id_ for (id_,) in db.execute("SELECT id FROM closings WHERE batch > 0")}
    assert len(ids) == 2
    for _ in range(2):
        with phone.start() as device:
            device.flush()
            assert device.join(PLAIN.id, entries=ENTRIES).status is Status.JOINED
    assert phone.told == []
    assert {closing.id for closing in phone.server.closings() if closing.period == 2} == ids


def test_on_macos_the_sidecar_bears_the_mark_that_time_machine_looks_for(tmp_path):
    """The bytes that `tmutil addexclusion` writes, handed to macOS's setxattr with its six arguments; and nothing is
    raised where it is not to be had."""
    given = []

    class Library:
        @staticmethod
        def setxattr(*arguments):
            given.append([getattr(each, "value", each) for each in arguments])

    leave_out_of_backups(tmp_path, Library)
    head, trailer = "62706c6973743030 5f1011 636f6d2e6170706c652e6261636b757064 08", "000000000000 01 01"
    mark = bytes.fromhex(f"{head} {trailer} {1:016x} {0:016x} {28:016x}")
    assert given == [[bytes(tmp_path), b"com.apple.metadata:com_apple_backup_excludeItem", mark, len(mark), 0, 0]]
    leave_out_of_backups(tmp_path, object())


def test_on_macos_the_sidecar_is_in_application_support(monkeypatch):
    """Caches are cleaned, and a participant would be lost with them."""
    import platformdirs
    from platformdirs.macos import MacOS

    monkeypatch.setattr(platformdirs, "PlatformDirs", MacOS)
    folder = default_folder("org.example.tea").as_posix()
    assert folder.endswith("/Library/Application Support/org.example.tea/changeling.witness")


def test_a_sidecar_says_to_backups_that_they_leave_it_out(phone):
    """By the mark of cache folders; and it holds no answer, only which store, how far, and which surveys."""
    phone.period(1, "coffee")
    assert (phone.sidecar / "CACHEDIR.TAG").read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55")
    seen = Sidecar(phone.sidecar).read()
    assert PLAIN.id in seen
    assert len(seen) < 100
    assert {file.name for file in phone.sidecar.iterdir()} == {"CACHEDIR.TAG", "witness"}


def test_a_witness_that_is_written_in_parts_is_written_whole(tmp_path, monkeypatch):
    """Half of it in place of the one before would be a witness of nothing, and silence its store for good."""
    seen, write = bytes(range(200)), os.write
    monkeypatch.setattr(os, "write", lambda handle, content: write(handle, content[: (len(content) + 1) // 2]))
    Sidecar(tmp_path / "witness").write(seen)
    monkeypatch.undo()
    assert Sidecar(tmp_path / "witness").read() == seen


def test_of_two_clones_with_one_witness_one_answers(phone):
    """Each in a folder of its own, so that no lock keeps them apart: the second flushes while the first draws."""
    shutil.copytree(phone.store, phone.root / "clone")

    class Meanwhile(SeededCoins):
        flushed = False

        def below(self, n):
            if not self.flushed:
                self.flushed = True
                with client(phone.root / "clone", phone.server, phone.clock, witness=phone.witness) as clone:
                    clone.flush()
            return super().below(n)

    with phone.start() as device:
        device._device.coins = Meanwhile(1)
        device.at(START + 80).flush()
        device.flush()
        assert device.join(PLAIN.id, entries=ENTRIES).status is Status.SILENCED
    assert len({closing.id for closing in phone.server.closings()}) == ENTRIES
    assert [type(error) for error in phone.told] == [Silenced]


@pytest.mark.parametrize("way", ["leave", "consent"])
def test_what_was_left_stays_left_though_a_backup_is_put_back(phone, way):
    """One survey, or all with the consent, also where that is given again: nothing is sent after that."""
    phone.period(1)
    copy = phone.backup(phone.store)
    with phone.start(consent=way == "leave") as device:
        if way == "leave":
            device.leave(PLAIN.id)
    phone.put_back(phone.store, copy)
    sent = len(phone.server.bodies)
    flushed, status = phone.period(2)
    assert (flushed.sent, len(phone.server.bodies)) == (0, sent)
    assert status is not Status.JOINED


def test_what_a_lost_store_has_spent_counts_on(phone):
    """The witness outlives the store, and the sum of all surveys stays within max_epsilon."""
    phone.period(1)
    shutil.rmtree(phone.store)
    with phone.start(max_epsilon=PLAIN.epsilon * 3 / 2) as device:
        assert device.ledger().spent == PLAIN.epsilon
        with pytest.raises(TooCostly):
            device.join(OTHER.id)


STEPS = ["flush", "killed", "back up", "put back", "put back all", "clone", "forget lock", "record"]


def laid_over(source, target, *, all_of_it):
    """The store's files as they were, in place of what is there; or the sidecar's as well, over what is there."""
    for file in target.glob("store.db*"):
        if file.is_file():
            file.unlink()
    for file in source.rglob("*"):
        to = target / file.relative_to(source)
        if file.is_file() and (all_of_it or file.parent == source):
            to.parent.mkdir(exist_ok=True)
            to.write_bytes(file.read_bytes())


def answered_once(steps):
    """Lives through these steps, then starts every store that there is once more: of each closing the server gets one
    id. A step is what happens, to which backup or answer, and whether a period goes by before."""
    with tempfile.TemporaryDirectory() as folder:
        live, other = Path(folder, "live"), Path(folder, "other")
        home, backups = Home(Path(folder), PLAIN), []

        def run(place, *, fails=False, answer=None):
            witness = Failing(live / "witness")
            with home.start(place, witness=witness) as device:
                handle = device.join(PLAIN.id)
                if answer is not None:
                    handle.record(answer)
                witness.error = GONE if fails else None
                device.flush()

        run(live)
        for what, which, later in steps:
            home.clock.now += 60 if later else 1
            if what == "back up":
                backups.append(Path(folder, f"{len(backups)}"))
                shutil.copytree(live, backups[-1])
            elif what in ("put back", "put back all") and backups:
                laid_over(backups[which % len(backups)], live, all_of_it=what == "put back all")
            elif what == "clone":
                other.mkdir(exist_ok=True)
                laid_over(live, other, all_of_it=False)
                run(other)
            elif what == "forget lock":
                (live / "store.db.lock").unlink(missing_ok=True)
            else:
                run(live, fails=what == "killed", answer=PLAIN.answers[which] if what == "record" else None)
        home.clock.now += 60
        for place in (live, other, *backups):
            if (place / "store.db").exists():
                run(place)
        ids = defaultdict(set)
        for closing in home.server.closings():
            ids[closing.period].add(closing.id)
        assert all(len(each) == 1 for each in ids.values())
        return ids


PUT_BACK = {
    "killed between drawing and telling, and an older store answers": [
        *(("back up", 0, True), ("killed", 0, False), ("back up", 0, False)),
        *(step for each in (0, 1, 0, 1) for step in (("put back", each, False), ("flush", 0, False))),
    ],
    "a backup laid over the living files, as `cp -r` does it": [
        *(("flush", 0, True), ("back up", 0, False), ("record", 0, True), ("put back all", 0, False)),
        ("flush", 0, False),
    ],
}


@pytest.mark.parametrize("name", PUT_BACK)
def test_a_store_that_was_put_back_answers_no_closing_twice(name):
    """Files that are there keep their numbers, and get the old content; of two stores that drew equally often the
    witness admits one."""
    assert answered_once(PUT_BACK[name])


@pytest.mark.heavy
@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2), st.booleans()), min_size=3, max_size=9))
def test_whatever_is_put_back_no_closing_is_answered_twice(steps):
    """Killed between drawing and telling, copied, put back with the sidecar laid over or without, cloned into another
    folder that has the same sidecar, in any order."""
    answered_once(steps)
