"""From what a server acknowledged in its journal to a segment: written, put into the catalogue, then forgotten.

Rolling the same twice changes nothing, so a server that is killed at any moment leaves nothing half done.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING

from changeling_protocol import UnixMilliseconds
from sqlalchemy import Connection

from ..errors import Unwritable
from ..segments import Place
from .catalogue import Segment, add_segment, frontier_of, move_frontier, wake
from .log import length_of

if TYPE_CHECKING:
    from ..segments.form import Row

SUFFIX = ".parquet"


@dataclass(frozen=True, slots=True)
class Written:
    """Requests of a stream that lie in a file of their own. rows: in order of position. name, size: the file's."""

    stream: int
    rows: "Sequence[Row]"
    name: str
    size: int


def write_segment(place: Place, stream: int, name: str, rows: "Sequence[Row]") -> Written:
    """Write a segment under a name that nothing else has, from `segment_name`. Raises Unwritable."""
    from ..segments.form import encoded  # its libraries are not installed everywhere

    content = encoded(stream, rows)
    place.put(name, content)
    return Written(stream, rows, name, len(content))


def segment_name(files: str, first: int) -> str:
    """A name for a segment that begins with the position `first`, which nothing else has.

    files: how the names of the stream's files begin.
    """
    return f"{files}-{first:016d}-{token_hex(8)}{SUFFIX}"


def roll(
    connection: Connection,
    place: Place,
    written: Written,
    start: UnixMilliseconds,
    end: UnixMilliseconds,
    now: UnixMilliseconds,
) -> UnixMilliseconds:
    """Put what was journaled into the catalogue, unless it is there; the stream's frontier is then what this returns.

    start, end: no arrival in the journal is before `start`, and none that comes later before `end`. now: all in Unix
    milliseconds. Where arrivals were set back meanwhile, what was journaled arrived at the frontier as it is now; where
    the stream was given up, and closings may be sealed without it, it arrives now. Raises Unwritable where the
    catalogue lacks what was journaled before: then nothing of this transaction may stay.
    """
    frontier = frontier_of(connection, written.stream)
    if frontier is None:
        frontier = wake(connection, written.stream, now)
    if frontier < start:
        earliest = latest = frontier
        moved = UnixMilliseconds(max(frontier + 1, min(end, now)))
    else:
        earliest, latest = (UnixMilliseconds(max(frontier, written.rows[at].arrival)) for at in (0, -1))
        moved = UnixMilliseconds(max(end, latest + 1))
    first, last = written.rows[0].position, written.rows[-1].position
    segment = Segment(written.stream, first, last, earliest, latest, place.name, written.name, written.size)
    if not add_segment(connection, segment) and length_of(connection, written.stream) < last:
        raise Unwritable(
            f"what was journaled before position {first} of stream {written.stream} in {place.name} is missing"
        )
    move_frontier(connection, written.stream, moved)
    return moved
