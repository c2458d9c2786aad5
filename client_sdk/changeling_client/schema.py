"""The tables of the store, and the marks by which a store is known."""

APPLICATION = int.from_bytes(b"chlg")
"""Stands in the file's header: the file is one of ours."""
VERSION = 3

TABLES = """
CREATE TABLE clock (              -- one row
    seen_ms INTEGER NOT NULL,     -- the latest time a record or a flush has seen, without the lead that was known then
    lead_ms INTEGER NOT NULL      -- how far the device was ahead of the server when they last spoke
);
INSERT INTO clock VALUES (0, 0);

CREATE TABLE surveys (
    id BLOB PRIMARY KEY,
    payload BLOB NOT NULL,        -- the bytes that were signed, verified on joining
    epsilon_micro INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE entries (
    survey BLOB NOT NULL REFERENCES surveys,
    number INTEGER NOT NULL,
    track_group INTEGER NOT NULL,
    answered INTEGER NOT NULL,    -- every node that ends by this period is answered or dropped
    delay_ms INTEGER NOT NULL,    -- drawn for the next closing
    used BLOB,                    -- of a joint group: slots used, a byte for each track; NULL once none is left
    score INTEGER,                -- and the weights of those that agreed, up to the threshold
    mutations INTEGER NOT NULL,
    first_ms INTEGER,             -- when the first mutation was
    dropped INTEGER NOT NULL,     -- closings past grace
    standing INTEGER NOT NULL,    -- what the next closing that is answered says of those before it
    stratum INTEGER NOT NULL,     -- public, as the app told it
    stratum_changes INTEGER NOT NULL,
    PRIMARY KEY (survey, number)
) WITHOUT ROWID;

CREATE TABLE drawn_nodes (        -- of tracks on which an entry reports only some nodes; answered ones go
    survey BLOB NOT NULL,
    entry INTEGER NOT NULL,
    track INTEGER NOT NULL,
    node INTEGER NOT NULL,
    PRIMARY KEY (survey, entry, track, node),
    FOREIGN KEY (survey, entry) REFERENCES entries
) WITHOUT ROWID;

CREATE TABLE changelog (
    survey BLOB NOT NULL,
    entry INTEGER NOT NULL,
    number INTEGER NOT NULL,      -- from 1 on, in order; at_ms never falls
    at_ms INTEGER NOT NULL,
    state INTEGER NOT NULL,       -- the new state; 0 is NULL
    PRIMARY KEY (survey, entry, number),
    FOREIGN KEY (survey, entry) REFERENCES entries
) WITHOUT ROWID;

CREATE TABLE closings (           -- the outbox: what an entry answered at a period's close, until acknowledged
    survey BLOB NOT NULL,
    entry INTEGER NOT NULL,
    period INTEGER NOT NULL,
    id BLOB NOT NULL,
    standing INTEGER NOT NULL,
    stratum INTEGER NOT NULL,
    PRIMARY KEY (survey, entry, period),
    FOREIGN KEY (survey, entry) REFERENCES entries
) WITHOUT ROWID;

CREATE TABLE reports (            -- of a closing; it may have none
    survey BLOB NOT NULL,
    entry INTEGER NOT NULL,
    period INTEGER NOT NULL,
    track INTEGER NOT NULL,
    node INTEGER NOT NULL,
    symbol BLOB NOT NULL,         -- big-endian; an alphabet may exceed 64 bits
    PRIMARY KEY (survey, entry, period, track),
    FOREIGN KEY (survey, entry, period) REFERENCES closings ON DELETE CASCADE
) WITHOUT ROWID;

CREATE TABLE sealing_keys (
    signed BLOB PRIMARY KEY       -- verified again at each use
) WITHOUT ROWID;
"""
