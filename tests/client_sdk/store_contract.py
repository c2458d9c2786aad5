"""A contract of stores: what every one promises, whatever keeps it. Inherit it, and say where new stores are.

Each test makes clients of one store as two pods would, by one server without a network.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from changeling_client import (
    Client,
    ClientClosed,
    Recorded,
    SharedCallbacks,
    Status,
    StoreBusy,
    StoreUnusable,
    SurveyHandle,
)
from changeling_client import store as store_module
from changeling_client.testing import FakeServer, make_survey

from .device import ended, forked, options

KEY = b"K" * 32
_NOWHERE: dict[str, Any] = {"path": None, "database": None}
ANSWERS = ["tea", "coffee", "neither"]


class Pods:
    """Clients of one store and one server. options: where the store is, as `Client` takes it."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.server = FakeServer()
        self.clock = self.server.clock
        self.survey = make_survey(answers=ANSWERS)
        self.server.publish(self.survey)
        self.meanwhile: Callable[[], object] | None = None
        """Done once, when the next request arrives, before it is answered."""

    def client(self, **others: Any) -> Client:
        """One more client, as another pod has it."""
        served = {"server": self.server.url, "authority": self.server.authority, "clock": self.clock}
        return Client(**options(**{**served, "transport": httpx.MockTransport(self._answer), **self.options, **others}))

    def join(self, client: Client, **options: Any) -> SurveyHandle:
        """Joins the survey, whose signed bytes are at hand."""
        return client.join(self.survey.id, signed=self.server.signed(self.survey), **options)

    def report(self, client: Client, days: int = 2) -> None:
        """Goes on from day to day, and flushes on each."""
        for _ in range(days):
            self.clock.advance(days=1)
            client.flush()

    def closings(self) -> int:
        """How many closings were answered, each of them once."""
        ids = [report.closing for report in self.server.reports]
        assert len(set(ids)) == len(ids), "a closing was answered twice"
        return len(ids)

    def said(self) -> list[str]:
        """All that the server was told, each report once, in the order of words."""
        return sorted(report.says for report in self.server.reports)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            act()
        return self.server._answer(request)


def witness_of(kept: list[bytes]) -> SharedCallbacks:
    """A witness that clients of this process share. kept: all that was put there, the last one stands."""

    def swap(expected: bytes | None, new: bytes) -> bool:
        held = (kept[-1] if kept else None) == expected
        kept.extend([new] * held)
        return held

    return SharedCallbacks(lambda: kept[-1] if kept else None, swap)


class StoreContract:
    """`pods`, `backup` and `kept` are fixtures of a subclass: a new store; what copies it, and gives what puts the copy
    back; and all bytes that it has on disk."""

    def test_a_transaction_is_kept_whole_or_not_at_all(self, pods: Pods) -> None:
        """What another pod sees is what was committed; an error undoes everything, and the store goes on."""
        with pods.client() as one, pods.client() as other:
            for reason in ("late", "an error", "closed"):
                with suppress(ValueError), one._device.store.transaction() as db:
                    db.execute("INSERT INTO drops VALUES (?, 1)", (reason,))
                    _ = [int(each) for each in [reason] if each == "an error"]
            assert other.ledger().drops == {"closed": 1, "late": 1}

    def test_a_transaction_is_alone(self, pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another pod waits for its end, but not for ever: then it is busy, and nothing of it is kept."""
        monkeypatch.setattr(store_module, "BUSY_SECONDS", 0.2)
        with pods.client() as one, pods.client() as other:
            handle = pods.join(one)
            with one._device.store.transaction(), pytest.raises(StoreBusy):
                pods.join(other)
            assert handle.record("tea") is Recorded.COUNTED
            assert pods.join(other).answer() == "tea"

    def test_after_close_every_call_says_that_the_client_is_closed(self, pods: Pods) -> None:
        """And not that the store cannot be trusted."""
        client = pods.client()
        handle, id_ = pods.join(client), pods.survey.id
        for _ in range(2):
            client.close()
        handles = (lambda: handle.record("tea"), handle.retract, handle.answer, handle.ledger, lambda: handle.status)
        calls = (*handles, client.flush, client.ledger, lambda: client.leave(id_), lambda: client.join(id_))
        for call in calls:
            with pytest.raises(ClientClosed, match="was closed"):
                call()

    @pytest.mark.parametrize(("made", "tries"), [(KEY, (b"L" * 32, None)), (None, (KEY,))], ids=["key", "none"])
    def test_another_key_does_not_open_it(
        self, pods: Pods, made: bytes | None, tries: tuple[bytes | None, ...]
    ) -> None:
        """Nor does none, or one that it was made without; the right one reads what was recorded."""
        with pods.client(key=made) as client:
            pods.join(client).record("coffee")
        for tried in tries:
            with pytest.raises(StoreUnusable, match="another key"):
                pods.client(key=tried)
        with pods.client(key=made) as client:
            assert pods.join(client).answer() == "coffee"

    def test_an_entry_that_answers_in_two_pods_answers_once(self, pods: Pods) -> None:
        """Both record, flush and are made anew at once, in threads: of each entry and period the server has one report,
        and each pod sees what the other has recorded."""
        entries, days = 6, 4
        with pods.client() as client:
            pods.join(client, entries=entries)

        def live(pod: int) -> None:
            with pods.client() as client:
                handle = pods.join(client)
                for entry in range(pod, entries, 2):
                    handle.record(ANSWERS[entry % 3], entry)
                client.flush()

        for _ in range(days):
            pods.clock.advance(days=1)
            with ThreadPoolExecutor(2) as threads:
                assert [*threads.map(live, range(2))] == [None] * 2
            with pods.client() as client:
                client.flush()
        assert pods.closings() == entries * days

    def test_one_pod_reports_at_a_time(self, pods: Pods) -> None:
        """One that starts meanwhile says so, and records; when the first has ended, it reports, and then the first
        again. The witness that they share silences neither."""
        said, told, others = [], [], []
        options = {"witness": witness_of([]), "on_error": told.append}

        def starts() -> None:
            others.append(pods.client(**options))
            handle = pods.join(others[0])
            said.extend([others[0].flush().trouble, handle.record("tea")])

        with pods.client(**options) as one:
            pods.join(one)
            pods.clock.advance(days=1)
            pods.meanwhile = starts
            assert one.flush().sent == 1
            assert said == ["another process of this app is reporting", Recorded.COUNTED]
            with others[0] as other:
                for device in (other, one):
                    pods.clock.advance(days=1)
                    assert device.flush().sent == 1
        assert told == []

    def test_entries_come_as_people_consent(self, pods: Pods) -> None:
        """Two pods are given numbers that nobody else has; the new ones report from then on; `join` adds what lacks."""
        with pods.client() as one, pods.client() as other:
            handle, beside = pods.join(one, entries=0), pods.join(other, entries=0)
            assert [*handle.add_entries(2), *beside.add_entries(), *handle.add_entries()] == [0, 1, 2, 3]
            beside.record("coffee", 3)
            pods.clock.advance(days=1)
            assert one.flush().sent == 4
            assert pods.said() == ["from no answer to coffee", *["no change"] * 3]
            assert pods.join(one, entries=6).add_entries(answers=["tea"]) == range(6, 7)
            pods.clock.advance(days=1)
            assert other.flush().sent == 7
            assert pods.said()[:2] == ["from no answer to coffee", "from no answer to tea"]

    def test_an_entry_that_leaves_is_wiped_by_itself(self, pods: Pods, kept: Callable[[], bytes]) -> None:
        """What waits of it is sent no more; what it knew is on no page of the store; it never comes back, its number is
        nobody's, and the others go on."""
        with pods.client(key=KEY) as one, pods.client(key=KEY) as other:
            handle, beside = pods.join(one, entries=3), pods.join(other, entries=3)
            handle.record("tea", 1)
            pods.clock.advance(days=1)
            pods.server.fail_with(503)
            assert other.flush().waiting == 3
            with one._device.store.transaction() as db:
                query = (
                    "SELECT private FROM entries WHERE number = 1 UNION SELECT reports FROM closings WHERE entry = 1"
                )
                pieces = [piece for (piece,) in db.execute(query)]
            assert len(pieces) == 2
            content = kept()
            assert all(piece in content for piece in pieces)
            handle.leave(1)
            content = kept()
            assert not any(piece in content for piece in pieces)
            for each in (handle, beside):
                each.leave(1)
                assert each.record("coffee", 1) is Recorded.DROPPED
                with pytest.raises(ValueError, match="entry 1 has left"):
                    each.answer(1)
            assert beside.add_entries() == range(3, 4)
            assert pods.join(one, entries=4).record("neither", 0) is Recorded.COUNTED
            pods.server.recover()
            pods.clock.advance(days=1)
            one.flush()
            assert pods.said() == ["from no answer to neither", *["no change"] * 4]

    def test_a_number_that_is_no_entrys_changes_nothing(self, pods: Pods) -> None:
        """Who reads it, or lets it leave, is told which there are."""
        with pods.client() as client:
            handle = pods.join(client, entries=2)
            for number in (-1, 2, 2**31, 2**70):
                for call in (handle.answer, handle.leave):
                    with pytest.raises(ValueError, match="numbered 0 to 1"):
                        call(number)
            assert handle.record("tea", 1) is Recorded.COUNTED
            assert handle.answer(1) == "tea"

    @pytest.mark.parametrize("everything", [False, True])
    def test_who_leaves_while_it_is_answered_is_sent_no_more(self, pods: Pods, everything: bool) -> None:
        """Another pod withdraws an entry, or all consent, as the first request of a flush arrives: the flush ends well,
        and nothing of what left is in any later request."""
        with pods.client() as one, pods.client() as other:
            pods.join(one, entries=2).record("tea", 1)
            handle = pods.join(other)
            pods.clock.advance(days=1)
            pods.meanwhile = lambda: other.set_consent(False) if everything else handle.leave(1)  # as keys are asked
            assert one.flush().sent == (0 if everything else 1)
            assert pods.said() == ([] if everything else ["no change"])

    def test_a_backup_that_is_put_back_is_silent(self, pods: Pods, backup: Callable[[], Callable[[], None]]) -> None:
        """All pods share a witness that the backup does not hold: what was answered is never answered again."""
        witness = witness_of([])
        with pods.client(witness=witness) as client:
            pods.join(client, entries=2)
        put_back = backup()
        for _ in range(2):
            pods.clock.advance(days=1)
            with pods.client(witness=witness) as client:
                assert client.flush().sent == 2
        put_back()
        told: list[object] = []
        with pods.client(witness=witness, on_error=told.append) as client:
            assert client.flush().sent == 0
            assert pods.join(client).status is Status.SILENCED
        assert [type(error).__name__ for error in told] == ["Silenced"]
        assert len(pods.server.reports) == 4

    def test_a_store_is_handed_over_with_the_entries_that_left(self, pods: Pods, tmp_path: Path) -> None:
        """To a file: who left stays away, its number is nobody's; the others go on, and may leave, also where
        one of their number had left the new store; the old one is retired."""
        with pods.client() as old, pods.client(**{**_NOWHERE, "path": tmp_path / "new" / "store.db"}) as new:
            handle = pods.join(old, entries=4)
            handle.record("tea", 2)
            handle.leave(1)
            pods.join(new, entries=4).leave(2)
            new.take_over(old.hand_over(new.invite(old.hand_over_key())))
            taken = pods.join(new, entries=4)
            assert (taken.answer(2), taken.add_entries()) == ("tea", range(4, 5))
            taken.leave(3)
            assert {taken.record("coffee", entry) for entry in (1, 3)} == {Recorded.DROPPED}
            pods.clock.advance(days=1)
            assert (new.flush().sent, old.flush().sent) == (3, 0)

    def test_a_store_that_cannot_be_read_is_destroyed_when_consent_ends(self, pods: Pods) -> None:
        """Whatever is in it; where it was there is none then."""
        with pods.client(key=KEY) as client:
            pods.join(client).record("tea")
        with pods.client(key=None, consent=False) as client:
            assert not client._device.settings.place.exists()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_parent_and_child_use_one_store(self, pods: Pods) -> None:
        """Forked while nothing is under way, each has a connection of its own, and both record."""
        with pods.client() as client:
            handle = pods.join(client, entries=2)
            child = forked(lambda: handle.record("tea", 1))
            assert handle.record("coffee", 0) is Recorded.COUNTED
            assert ended(child) == 0
            assert handle.answer(1) == "tea"
