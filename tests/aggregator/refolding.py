"""The whole log folded again from empty: what the stored tallies must be."""

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge

from changeling_aggregator.fold.counting import count
from changeling_aggregator.store import LoggedEnvelope, NodeKey
from changeling_aggregator.store.log import envelopes_after
from changeling_aggregator.store.schema import streams
from changeling_protocol import Survey
from changeling_statistics.tallies import NodeTally
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import Connection, select


def whole_log(connection: Connection) -> Iterator[LoggedEnvelope]:
    """Every envelope not pruned, in the log's order."""
    numbers = connection.execute(select(streams.c.id)).scalars().all()
    return merge(*(envelopes_after(connection, number, 0) for number in numbers))


def refold(
    batches: Iterable[Iterable[LoggedEnvelope]],
    surveys: Mapping[bytes, Survey],
    keys: Mapping[bytes, X25519PrivateKey],
) -> dict[NodeKey, NodeTally]:
    """The tallies of a whole log, folded from empty: what the stored ones must be.

    Envelopes whose private key is destroyed do not open any more, so this holds while the keys live; of sealed
    nodes it does not hold, as the log is pruned.
    """
    tallies: dict[NodeKey, NodeTally] = {}
    runs: dict[NodeKey, list[bytes]] = {}
    for batch in batches:
        counted = count(batch, surveys, keys, lambda key, _: runs.get(key, ()))
        for key, added in counted.tallies.items():
            tallies[key] = tallies[key] + added if key in tallies else added
            runs.setdefault(key, []).append(counted.ids[key])
    return tallies
