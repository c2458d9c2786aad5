"""The tables of the server's store: one definition for every database that may hold them.

Times are Unix milliseconds; ids are 16 bytes; what is columnar is a blob of fixed-width values.
"""

from sqlalchemy import DDL, BigInteger, Boolean, Column, Identity, Integer, LargeBinary, MetaData, String, Table, event

PROGRAM = "changeling-aggregator"
VERSION = "0005"
"""Of these tables: the last file in `migrations`, which makes them of those of the version before."""

metadata = MetaData()

versions = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
"""One row, the version of a store's tables; Alembic's own table."""

store = Table(
    "store",
    metadata,
    Column("program", String, primary_key=True),
    Column("arrival", BigInteger, nullable=False),
    Column("stream", Integer, nullable=False),
    Column("held", BigInteger, nullable=False),
    Column("told", BigInteger, nullable=False),
    Column("jumped", Boolean, nullable=False),
)
"""One row: whose tables these are; the latest arrival given out, with the stream that got it; the moment that no
arrival is before, as something was sealed then; the latest time of a clock that was believed, 0 for none; and whether
that clock was set to another time since."""

surveys = Table(
    "surveys",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("signed", LargeBinary, nullable=False),
    Column("public", Boolean, nullable=False),
)
"""`public`: whether its results are open to all."""

tokens = Table(
    "tokens",
    metadata,
    Column("hash", LargeBinary(32), primary_key=True),
    Column("name", String, nullable=False),
    Column("scopes", String, nullable=False),
    Column("created", BigInteger, nullable=False),
)
"""Who may do what: hashes of tokens, with their scopes, separated by spaces. Unix seconds."""

early_ends = Table(
    "early_ends",
    metadata,
    Column("survey", LargeBinary(16), primary_key=True),
    Column("last", Integer, nullable=False),
    Column("signed", LargeBinary, nullable=False),
)
"""The last period that counts, of surveys that the authority ended before their calendar does."""

sealing_keys = Table(
    "sealing_keys",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("public", LargeBinary(32), nullable=False),
    Column("private", LargeBinary(32)),
    Column("signed", LargeBinary),
    Column("begins", BigInteger),
    Column("expires", BigInteger),
)
"""`private` may be encrypted, and is null once destroyed; the last three are null until the authority has signed. Unix
seconds."""

streams = Table(
    "streams",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("length", BigInteger, nullable=False),
    Column("place", String),
    Column("files", String),
    Column("frontier", BigInteger),
)
"""One stream a server process; its envelopes have the positions 1 to `length`, without gaps. The database numbers
them. Where a stream lies in segments: their place, and how the names of all its files begin. frontier: all of the
stream that arrived before is in the catalogue, and nothing before it is to come; null where nothing is to come that
the catalogue does not have."""

segments = Table(
    "segments",
    metadata,
    Column("stream", Integer, primary_key=True, autoincrement=False),
    Column("first", BigInteger, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
    Column("earliest", BigInteger, nullable=False),
    Column("latest", BigInteger, nullable=False),
    Column("name", String, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("cut", Boolean, nullable=False),
)
"""The catalogue: files with the positions `first` to `last` of a stream, no two with the same. An arrival in a file
counts as no earlier and no later than `earliest` and `latest`. cut: only what is held of it is still wanted."""

dropped = Table(
    "dropped",
    metadata,
    Column("stream", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
)
"""What of the segments counts as deleted; it is gone once its segment is written anew."""

doomed = Table(
    "doomed",
    metadata,
    Column("place", String, primary_key=True),
    Column("name", String, primary_key=True),
)
"""Files that no catalogue names any more, or not yet: whoever has the turn to fold deletes them. A name that ends with
`-` stands for all files of a run on Spark, whose names begin so; those that hold ids which count stay."""

log = Table(
    "log",
    metadata,
    Column("stream", Integer, primary_key=True),
    Column("position", BigInteger, primary_key=True),
    Column("arrival", BigInteger, nullable=False),
    Column("envelope", LargeBinary, nullable=False),
)
"""A row is a request, with one or many envelopes in it, as it was sent."""

cursors = Table(
    "cursors",
    metadata,
    Column("stream", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("pruned", BigInteger, nullable=False),
)
"""The last position of each stream that the fold has counted, and the last whose time is over; 0 for none."""

held = Table(
    "held",
    metadata,
    Column("stream", Integer, primary_key=True),
    Column("position", BigInteger, primary_key=True),
    Column("until", BigInteger, nullable=False),
)
"""Envelopes with a closing that came before its period ended, which are kept until that closing is sealed."""

thinned = Table(
    "thinned",
    metadata,
    Column("stream", Integer, primary_key=True, autoincrement=False),
    Column("grace", BigInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
)
"""Up to which position a stream was looked through for envelopes of surveys with a grace, in milliseconds, that is not
the longest."""

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
"""slots: int64, little-endian."""

attendance = Table(
    "attendance",
    metadata,
    Column("survey", LargeBinary(16), primary_key=True),
    Column("group", Integer, primary_key=True),
    Column("period", Integer, primary_key=True),
    Column("stratum", Integer, primary_key=True),
    Column("heard", BigInteger, nullable=False),
    Column("new", BigInteger, nullable=False),
    Column("missed", BigInteger, nullable=False),
)
"""How many entries answered at a period's close, and how many of them for the first time."""

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

id_files = Table(
    "id_files",
    metadata,
    Column("name", String, primary_key=True),
    Column("place", String, nullable=False),
    Column("survey", LargeBinary(16), nullable=False),
    Column("size", BigInteger, nullable=False),
)
"""Files with ids counted for closings that were not sealed then, which stand in no run; `size` is how many."""

refusals = Table(
    "refusals",
    metadata,
    Column("survey", LargeBinary(16), primary_key=True),
    Column("reason", String, primary_key=True),
    Column("count", BigInteger, nullable=False),
)

sealed = Table(
    "sealed",
    metadata,
    Column("survey", LargeBinary(16), primary_key=True),
    Column("period", Integer, nullable=False),
)
"""All closings up to this period are sealed, with the nodes that end there."""

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
"""What is shown of each closing: nothing else leaves the server. cells: [track, node, reports, slots] of each node that
ends there, in canonical MessagePack."""

shown = Table(
    "shown",
    metadata,
    Column("survey", LargeBinary(16), primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("final", Integer, nullable=False),
    Column("due", Integer, nullable=False),
    Column("folded", BigInteger, nullable=False),
)
"""How often what is shown of a survey has changed; up to which closing it is final; and up to which closing, and after
how many folded envelopes, it was looked at last."""

for random in (log.c.envelope, runs.c.ids):
    # PostgreSQL would try to compress it: in vain, and for a third of the time that storing it takes.
    as_it_is = DDL(f"ALTER TABLE {random.table.name} ALTER {random.name} SET STORAGE EXTERNAL")  # type: ignore[no-untyped-call]
    event.listen(random.table, "after_create", as_it_is.execute_if(dialect="postgresql"))

for secret in (sealing_keys.c.private, log.c.envelope, runs.c.ids):
    # PostgreSQL would keep values of a column that it analyses among its statistics, long after they are deleted.
    unseen = DDL(f"ALTER TABLE {secret.table.name} ALTER {secret.name} SET STATISTICS 0")  # type: ignore[no-untyped-call]
    event.listen(secret.table, "after_create", unseen.execute_if(dialect="postgresql"))
