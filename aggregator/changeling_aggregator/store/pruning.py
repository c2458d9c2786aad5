"""What of the log may go: envelopes that are folded, when every node they count for is sealed.

That is at arrival and grace, as a report comes after its node has closed. One that came before holds its envelope
until the node is sealed. So whatever is not sealed can be folded again.
"""

from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, and_, bindparam, delete, exists, insert, select, update

from .schema import cursors, held, log

_MOST_AT_ONCE = 20_000
"""Of a stream, and of those held: appending has to wait meanwhile."""


def hold(connection: Connection, until: Mapping[tuple[int, int], int]) -> None:
    """Keep envelopes, by stream and position, until these Unix milliseconds have passed."""
    if until:
        rows = [{"stream": stream, "position": position, "until": end} for (stream, position), end in until.items()]
        connection.execute(insert(held), rows)


def any_to_prune(connection: Connection, arrival: int, now: int) -> bool:
    """Whether `prune` would find anything."""
    ended = connection.execute(select(held.c.until).where(held.c.until < now).limit(1)).first()
    return ended is not None or any(True for _ in _over(connection, arrival, most=1))


def prune(connection: Connection, arrival: int, now: int) -> None:
    """Delete folded envelopes that arrived before `arrival`, and those held until before `now`; no more than so many.

    Both in Unix milliseconds: now minus the longest grace, and now.
    """
    for stream, after, until in list(_over(connection, arrival, _MOST_AT_ONCE)):
        is_held = exists().where(held.c.stream == log.c.stream, held.c.position == log.c.position)
        of_range = and_(log.c.stream == stream, log.c.position > after, log.c.position <= until)
        connection.execute(delete(log).where(of_range, ~is_held))
        connection.execute(update(cursors).where(cursors.c.stream == stream).values(pruned=until))
    ended = select(held.c.stream.label("of"), held.c.position.label("at")).where(held.c.until < now)
    if rows := [dict(row) for row in connection.execute(ended.limit(_MOST_AT_ONCE)).mappings()]:
        for table in (log, held):
            named = table.c.stream == bindparam("of"), table.c.position == bindparam("at")
            connection.execute(delete(table).where(*named), rows)


def _over(connection: Connection, arrival: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Per stream, the first positions (after, until], folded and not pruned, that arrived before this."""
    query = select(cursors).where(cursors.c.pruned < cursors.c.position)
    for row in connection.execute(query).all():
        until = min(row.position, row.pruned + most)
        of_range = and_(log.c.stream == row.stream, log.c.position > row.pruned, log.c.position <= until)
        stays = select(log.c.position).where(of_range, log.c.arrival >= arrival).order_by(log.c.position).limit(1)
        first = connection.execute(stays).scalar_one_or_none()
        until = until if first is None else first - 1
        if until > row.pruned:
            yield row.stream, row.pruned, until
