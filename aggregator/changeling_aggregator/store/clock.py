"""What the store remembers of the server's clock, so that a server that starts knows whether to believe it."""

from typing import NamedTuple

from changeling_protocol import UnixMilliseconds
from sqlalchemy import Connection, select, update

from .schema import store


class KeptTime(NamedTuple):
    """The latest time of a clock that was believed, in Unix milliseconds, 0 for none; and whether it jumped since."""

    told: UnixMilliseconds
    jumped: bool


def kept_time(connection: Connection) -> KeptTime:
    """What was kept last."""
    return KeptTime(*connection.execute(select(store.c.told, store.c.jumped)).one())


def keep_time(connection: Connection, kept: KeptTime) -> None:
    """Remember this instead."""
    connection.execute(update(store).values(told=kept.told, jumped=kept.jumped))
