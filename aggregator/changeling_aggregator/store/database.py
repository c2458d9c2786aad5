"""What the store asks of a database beyond SQL that all of them speak: `embedded` and `postgresql` answer it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from sqlalchemy import Connection, Engine

Transactions: TypeAlias = Callable[[], AbstractContextManager[Connection]]
"""Each call is a transaction that may write, kept whole when it ends; or nothing of it is, when it raises."""


class Database(ABC):
    """A database that holds a store, or may.

    Whoever has it open holds it together with others, or alone: then nobody else has it open, nor can open it. What is
    held ends with the process.
    name: what messages call it; never holds a password.
    """

    name: str
    engine: Engine

    @abstractmethod
    def reader(self, once: bool = False) -> Connection:
        """A connection whose transactions see one state each, and write nothing. once: each is one statement."""

    @abstractmethod
    def writer(self, once: bool = False) -> Connection:
        """A connection whose transactions may write. once: each is one statement, which is whole by itself."""

    @abstractmethod
    def keep_others_out(self, connection: Connection) -> None:
        """Let no other process make or migrate the store until this transaction ends; waits for one that does."""

    @abstractmethod
    def insist_on(self, version: str) -> None:
        """Use the store from now on only as long as its tables have this schema version."""

    @abstractmethod
    def turn(self) -> AbstractContextManager[Transactions | None]:
        """The turn of this process to fold, until it is given back or the process ends; None where another has it.

        Gives the fold's transactions: one that begins, or ends, once the turn is lost raises.
        """

    @abstractmethod
    def forget_overwritten(self) -> bool:
        """Take bytes that were overwritten out of the database's files; False where somebody is reading them."""

    @abstractmethod
    def write_back(self) -> None:
        """Move what was written to its place in the database's files, so that no upload has to, or waits for it."""

    @abstractmethod
    def give_back(self) -> None:
        """Give free room in the database's files back to the disk, where that is worth the time that others wait."""

    @abstractmethod
    def bytes_kept(self) -> int:
        """About how many bytes the log takes, and what else there is much of, without what was deleted."""

    @abstractmethod
    def in_place(self) -> bool:
        """Whether it is still where it was opened, so that nothing is appended in vain; asked before each commit."""

    @abstractmethod
    def trouble(self) -> str | None:
        """Why no upload should be appended to it, as far as can be told without asking it; None where all is well."""

    def close(self) -> None:
        """Close the connections; a transaction in hand is lost."""
        self.engine.dispose()
