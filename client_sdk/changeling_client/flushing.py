"""A flush: joins the surveys that were asked for, answers what is due, then sends what waits.

What is sent stays in the outbox until the server acknowledges it or its grace is over, whatever happens on the way.
Before anything is dropped as too late, or several closings are answered at once, the server is asked for the time. The
store is never held while the network is waited for, and never for longer than it takes to answer what one upload spans.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from changeling_protocol import Coins

from . import entries, outbox, witness
from .answering import Answerer
from .enrolment import Enroller
from .entries import Status
from .errors import ClientError, ServerTrouble, WitnessTrouble
from .outbox import Sender
from .server import Server, Servers
from .settings import ClientSettings
from .store import ClientStore, reading
from .transport import Deadline


@dataclass(frozen=True, slots=True)
class Flushed:
    """The result of a flush, counted in closings. A closing is one entry's answer to the close of one period.

    sent: how many the server acknowledged.
    waiting: how many are kept for the next flush.
    dropped: how many came too late, past their grace or after the survey's end.
    trouble: what went wrong with the server, or what the app was told, such as that a survey may not be joined, in
    words; None if nothing did.
    """

    sent: int
    waiting: int
    dropped: int
    trouble: str | None


class Flush:
    """One flush of a store.

    sending: as `Sender` takes it. deadline: when the network has had its time, of which no server takes more than its
    share. coins: where the chances of what is drawn come from.
    """

    def __init__(
        self,
        store: ClientStore,
        servers: Servers,
        settings: ClientSettings,
        sending: AbstractContextManager[object],
        deadline: Deadline,
        coins: Coins,
    ) -> None:
        self._store, self._servers, self._settings = store, servers, settings
        self._deadline, self._coins = deadline, coins
        self._answerer = Answerer(store, settings.witness, coins)
        self._sender = Sender(store, sending)
        self._trouble: str | None = None

    @reading
    def run(self, unbidden: bool) -> tuple[Flushed, list[ClientError]]:
        """Joins, answers and sends. unbidden: whether nobody asked for it: servers that failed are then left in peace.

        Returns what it did, and what there is to tell the app: surveys that may not be joined, or are silent now.
        Trouble with a server is told in what is returned, never raised. Raises a store's errors, and ClientClosed.
        """
        with self._store.reporting.tried() as alone:
            if not alone:
                return Flushed(0, self._waiting(), 0, "another process of this app is reporting"), []
            self._servers.begin(unbidden)
            try:
                return self._run()
            finally:
                self._servers.end()

    def _run(self) -> tuple[Flushed, list[ClientError]]:
        told: list[ClientError] = []
        with self._store.transaction() as db:
            asked, awaited = entries.find_surveys(db, Status.ASKED), entries.is_awaited(db)
        if awaited:
            return Flushed(0, self._waiting(), 0, "an invitation is open: nothing is joined or answered"), []
        if asked:
            told, trouble = Enroller(self._store, self._settings, self._coins).join_asked(self._servers, self._deadline)
            self._note(trouble)
        try:
            with self._store.transaction() as db:
                urls = sorted({known.url for known in entries.find_surveys(db, Status.JOINED)})
            for done, url in enumerate(urls):
                told += self._flush_server(self._servers.at(url), self._deadline.share(len(urls) - done))
        except WitnessTrouble as error:
            self._note(str(error))
        self._note(self._sender.trouble)
        waiting, dropped = self._waiting(), self._answerer.dropped + self._sender.dropped
        self._servers.end()  # erasing takes longer if anything was recorded, and no server sees how long
        self._store.erase_past(changed=self._sender.sent + dropped > 0)
        return Flushed(self._sender.sent, waiting, dropped, self._trouble), told

    def _flush_server(self, server: Server, deadline: Deadline) -> list[ClientError]:
        """Answers and sends what goes to one server."""
        silenced = witness.check(self._store, self._settings.witness)  # while it cannot be asked, no server is
        with self._store.transaction() as db:
            server.begin(db)
        doubtful = self._answerer.doubts_the_time(server)
        if doubtful:
            self._note(self._ask_the_time(server, deadline))
        heard_before = server.has_told_time
        told, changed = self._answerer.answer(server, may_drop=doubtful and heard_before)
        if changed:  # else what was recorded would show in the time between two requests
            self._store.erase_past()  # the network may take its time
        self._sender.send(server, deadline)
        with self._store.transaction() as db:
            server.keep(db)
            if server.has_told_time and not heard_before:
                self._answerer.judge(db, server)
            self._answerer.end_finished(db, server)
        return told if silenced is None else [silenced, *told]

    def _ask_the_time(self, server: Server, deadline: Deadline) -> str | None:
        """Asks the server for the time. Returns the trouble, None if there was none."""
        try:
            server.ask_the_time(deadline)
        except ServerTrouble as error:
            return str(error)
        finally:
            with self._store.transaction() as db:
                server.keep(db)
        return None

    def _note(self, trouble: str | None) -> None:
        self._trouble = self._trouble or trouble

    def _waiting(self) -> int:
        with self._store.transaction() as db:
            return outbox.size(db)
