"""The tables of the server's store: one definition for every database that may hold them.

Times are Unix milliseconds; ids are 16 bytes; what is columnar is a blob of fixed-width values.
"""

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    event,
)

PROGRAM = "changeling-aggregator"
VERSION = 1
"""The version of these tables. With the next one comes a migration, in `database.MIGRATIONS`."""

metadata = MetaData()

store = Table(
    "store",
    metadata,
    Column("program", String, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("arrival", BigInteger, nullable=False),
    Column("stream", Integer, nullable=False),
    Column("floor", BigInteger, nullable=False),
    Column("believed", BigInteger, nullable=False),
    Column("jumped", Boolean, nullable=False),
)
"""One row: whose tables these are; the latest arrival given out, with the stream that got it; the floor that no arrival
is before, as something was sealed then; the latest time of a clock that was believed, 0 for none; and whether that
clock was set to another time since."""

surveys = Table(
    "surveys",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("signed", LargeBinary, nullable=False),
    Column("public", Boolean, nullable=False),
    Column("last", Integer),
    Column("signed_end", LargeBinary),
    Column("sealed", Integer, nullable=False, server_default="0"),
    Column("revision", BigInteger, nullable=False, server_default="0"),
    Column("final", Integer, nullable=False, server_default="0"),
    Column("due", Integer, nullable=False, server_default="0"),
    Column("folded", BigInteger, nullable=False, server_default="0"),
)
"""public: whether its results are open to all. last: the last period that counts, where the authority ended the survey
early. sealed: all closings up to this period are sealed, with the nodes that end there. revision: how often what is
shown has changed. final: up to which closing it is shown for good. due, folded: up to which closing, and after how many
folded requests, it was looked at last."""

tokens = Table(
    "tokens",
    metadata,
    Column("hash", LargeBinary(32), primary_key=True),
    Column("name", String, nullable=False),
    Column("scopes", String, nullable=False),
    Column("created", BigInteger, nullable=False),
)
"""Access tokens: their hashes, with their scopes, separated by spaces. Unix seconds."""

keys = Table(
    "keys",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("purpose", String, nullable=False),
    Column("public", LargeBinary(32), nullable=False),
    Column("private", LargeBinary(32)),
    Column("signed", LargeBinary),
    Column("begins", BigInteger),
    Column("expires", BigInteger),
)
"""Keys that uploads are sealed to, and those that editions are signed with (`registry.KeyPurpose`). `private` may be
encrypted, and is null once destroyed; the last three are null until the authority has signed. Unix seconds."""

streams = Table(
    "streams",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("survey", LargeBinary(16)),
    Column("place", String),
    Column("prefix", String),
    Column("length", BigInteger, nullable=False),
)
"""The requests that one server process appends, of one survey in rows of the log, or of all of them in segments, at the
positions 1 to `length`, without gaps. The database numbers streams. Where one lies in segments: their place, and how
the names of all its files begin."""

cursors = Table(
    "cursors",
    metadata,
    Column("stream", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("deleted", BigInteger, nullable=False),
)
"""The last position of each stream that the fold has counted, and the last whose time is over; 0 for none. A table of
its own, as whoever appends changes a stream's row while the fold changes this."""

log = Table(
    "log",
    metadata,
    Column("stream", Integer, primary_key=True),
    Column("position", BigInteger, primary_key=True),
    Column("arrival", BigInteger, nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    Column("needed_until", BigInteger),
)
"""A row is what one request has for one survey: one or many envelopes. needed_until: of one with a closing that came
before its period ended, when that is sealed."""
early = Index(
    "log_needed_until",
    log.c.needed_until,
    sqlite_where=log.c.needed_until.is_not(None),
    postgresql_where=log.c.needed_until.is_not(None),
)

files = Table(
    "files",
    metadata,
    Column("place", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("size", BigInteger),
    Column("stream", Integer),
    Column("first", BigInteger),
    Column("last", BigInteger),
    Column("earliest", BigInteger),
    Column("latest", BigInteger),
    Column("surveys", LargeBinary),
)
"""Files beside the database, by their kind (`files.FileKind`). A segment has the positions `first` to `last` of a
stream, which no other has; an arrival in it counts as no earlier and no later than `earliest` and `latest`; size:
bytes; surveys: the ids of those that its requests are of, end to end, none where that is not known. A file of ids has
those that were counted for one survey's closings and stand in no run; size: how many. What is to be deleted has none of
this."""
Index("files_of_streams", files.c.stream, files.c.first, unique=True)

tallies = Table(
    "tallies",
    metadata,
    Column("survey", LargeBinary(16), primary_key=True),
    Column("track", Integer, primary_key=True),
    Column("node", Integer, primary_key=True),
    Column("stratum", Integer, primary_key=True),
    Column("reports", BigInteger, nullable=False),
    Column("slots", LargeBinary, nullable=False),
)
"""The reports on each node. slots: int64, little-endian. And how many entries answered at each closing of a group: its
track is then -1 - group, its node the period, and its two slots are how many of them answered for the first time, and
how many had missed all before."""

runs = Table(
    "runs",
    metadata,
    Column("survey", LargeBinary(16), primary_key=True),
    Column("period", Integer, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("first", LargeBinary(16), primary_key=True),
    Column("ids", LargeBinary, nullable=False),
)
"""The ids counted for a closing that is not sealed: runs of sorted ids, each longer than the next and cut into chunks,
which are named by the first id in them."""

refusals = Table(
    "refusals",
    metadata,
    Column("survey", LargeBinary(16), primary_key=True),
    Column("reason", String, primary_key=True),
    Column("count", BigInteger, nullable=False),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("survey", LargeBinary(16), primary_key=True),
    Column("period", Integer, primary_key=True),
    Column("group", Integer, primary_key=True),
    Column("stratum", Integer, primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("heard", BigInteger, nullable=False),
    Column("new", BigInteger, nullable=False),
    Column("missed", BigInteger, nullable=False),
    Column("cells", LargeBinary, nullable=False),
)
"""The figures that are shown of each closing: nothing else leaves the server. cells: [track, node, reports, slots] of
each node that ends there, in canonical MessagePack."""

editions = Table(
    "editions",
    metadata,
    Column("survey", LargeBinary(16), primary_key=True),
    Column("revision", BigInteger, primary_key=True),
    Column("last", Integer, primary_key=True),
    Column("made", BigInteger, nullable=False),
    Column("id", LargeBinary(16), nullable=False),
    Column("files", LargeBinary, nullable=False),
)
"""Published results of open surveys, as files, at a revision of what is shown and with a last period that counts. id:
its name. files: by their names, each compressed with gzip, in canonical MessagePack. made: Unix seconds."""

for random in (log.c.envelope, runs.c.ids):
    # PostgreSQL would try to compress it: in vain, and for a third of the time that storing it takes.
    as_it_is = DDL(f"ALTER TABLE {random.table.name} ALTER {random.name} SET STORAGE EXTERNAL")  # type: ignore[no-untyped-call]
    event.listen(random.table, "after_create", as_it_is.execute_if(dialect="postgresql"))

for secret in (keys.c.private, log.c.envelope, runs.c.ids):
    # PostgreSQL would keep values of a column that it analyses among its statistics, long after they are deleted.
    unseen = DDL(f"ALTER TABLE {secret.table.name} ALTER {secret.name} SET STATISTICS 0")  # type: ignore[no-untyped-call]
    event.listen(secret.table, "after_create", unseen.execute_if(dialect="postgresql"))
