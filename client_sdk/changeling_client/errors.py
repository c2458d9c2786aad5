"""The errors on a device. Every error but a bad argument's is a ClientError.

    ClientError
    ├── ClientClosed        the client was closed: make another
    ├── StoreUnusable       the store is damaged, foreign, or from a later version: stay silent
    ├── StoreFull           the disk, or the room of the store, is full: nothing was kept
    ├── StoreReadOnly       the file, its folder or its disk may not be written to, or none is known: nothing was kept
    ├── StoreBusy           another process held the store for too long, or no file can be opened: try again
    ├── ServerTrouble       the server could not be asked, or its answer not be used: try again
    ├── WitnessTrouble      the witness cannot be read or written: nothing is answered until it can
    ├── Silenced            the store was put back, copied, or lost: the survey stays silent for good
    └── CannotJoin          the survey may not be joined from this store
        ├── BadSurvey       no pinned key signed it, it cannot be read, or it costs more than it states
        ├── WrongSurvey     the bytes are not of the survey that was named
        ├── TooCostly       with it the store would exceed max_epsilon
        ├── EnrolmentOver   its calendar has ended, or its cohort is closed
        └── BadEnrolment    the entries, first answers or strata that the app named do not fit the survey

A bad argument is a plain ValueError with the value in it. No error holds an answer or a coin.
"""

from changeling_protocol import ChangelingError

_MISSING = frozenset({404, 405, 410})


def shown(text: str) -> str:
    """A survey's text as it may stand in a line of ours: whoever signs it begins no other line, and moves no cursor."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def quoted(text: str) -> str:
    """The same in quotation marks that are seldom in it."""
    return f"“{shown(text)}”"


class ClientError(ChangelingError):
    """Root of every error this package raises besides ValueError."""


class ClientClosed(ClientError):
    """The client was closed. What it kept is on disk, and goes on with the next client of that store."""


class StoreUnusable(ClientError):
    """The store cannot be trusted. What its entries have spent is unknown, so nothing may start afresh in its place."""


class StoreFull(ClientError):
    """There is no room on the disk; nothing was changed."""


class StoreReadOnly(ClientError):
    """The store, or the folder it is in, may not be written to, or nobody knows where it is; nothing was changed."""


class StoreBusy(ClientError):
    """Another process held the store for longer than we wait, or no more files can be opened; nothing was changed."""


class ServerTrouble(ClientError):
    """The server could not be asked, or gave no usable answer. `flush` returns it as text instead.

    status: of HTTP, where it answered with another one than 200; None otherwise.
    is_failure: whether something was tried and failed, so that the next attempt had better wait.
    """

    def __init__(self, words: str, status: int | None = None, *, is_failure: bool = True) -> None:
        super().__init__(words)
        self.status, self.is_failure = status, is_failure

    @property
    def is_missing(self) -> bool:
        """True if nothing answers at this path, or not yet: a survey may be published after its app."""
        return self.status in _MISSING


class WitnessTrouble(ClientError):
    """The witness could not be read or written. Nothing is answered, and nothing lost, until it can be."""


class Silenced(ClientError):
    """The witness saw something else than the store says: a backup was put back, or the store is a copy, or was lost.

    Answering again would tell more than the ledger says, so these surveys stay silent for good. Its words say what has
    happened, as far as it can be told: a witness that is gone is a new laptop, say, or a folder that was cleaned.
    surveys: their ids.
    """

    def __init__(self, words: str, surveys: tuple[bytes, ...] = ()) -> None:
        super().__init__(words)
        self.surveys = surveys


class CannotJoin(ClientError):
    """The survey may not be joined from this store; nothing was joined."""


class BadSurvey(CannotJoin):
    """None of the pinned keys signed the survey, its bytes cannot be read, or it costs more than it states.

    `__cause__` is the protocol's BadSignature, MalformedBytes or UnderstatedEpsilon.
    """

    def __init__(self, words: str) -> None:
        super().__init__(shown(words))


class WrongSurvey(CannotJoin):
    """The signed bytes are of another survey than the one that was named."""


class TooCostly(CannotJoin):
    """The stated epsilons of this store's surveys would add up to more than max_epsilon."""


class EnrolmentOver(CannotJoin):
    """The survey's calendar has ended, or its cohort is closed and the first period is over."""


class BadEnrolment(CannotJoin):
    """The arguments of `join` do not fit the survey: a closed cohort's first answers, or a stratum."""
