"""The tables of the store, and the marks by which a store is known."""

APPLICATION = int.from_bytes(b"chlg")
"""Stands in the file's header: the file is one of ours."""
VERSION = 2
"""Of the tables. A store of another version is refused: none was released."""
TABLES = """
CREATE TABLE device (             -- one row
    identity BLOB NOT NULL,       -- 16 random bytes, drawn with each generation, then those before: what a witness saw
    generation INTEGER NOT NULL,  -- how often answers were drawn, or surveys left
    witnessed INTEGER NOT NULL,   -- whether a witness has seen it; 2 where it has to hear that surveys were left
    key_check BLOB NOT NULL       -- known words, as the app's key encrypts them; empty without a key
);

CREATE TABLE servers (            -- what is known of each server or relay that is asked
    url TEXT PRIMARY KEY,
    seen_ms INTEGER NOT NULL,     -- the latest time that a flush or an enrolment has seen, less the lead known then
    lead_ms INTEGER NOT NULL,     -- how far the device was ahead of the server when they last spoke
    failed_ms INTEGER NOT NULL,   -- when it failed last; what follows is counted from then on
    silence_ms INTEGER NOT NULL,  -- for how long it asked not to be asked
    pause_ms INTEGER NOT NULL,    -- and for how long after that nobody asks unbidden
    failures INTEGER NOT NULL,    -- how often in a row it failed
    whole_ms INTEGER NOT NULL     -- when its budget of requests in vain is whole again
) WITHOUT ROWID;

CREATE TABLE looks (              -- when several closings were due, and no server had told the time yet
    url TEXT NOT NULL,
    at_ms INTEGER NOT NULL,       -- by the device's clock
    PRIMARY KEY (url, at_ms)
) WITHOUT ROWID;

CREATE TABLE sealing_keys (
    url TEXT NOT NULL,
    signed BLOB NOT NULL,         -- verified again at each use
    PRIMARY KEY (url, signed)
) WITHOUT ROWID;

CREATE TABLE surveys (            -- never deleted, so that none is ever joined twice
    id BLOB PRIMARY KEY,
    status INTEGER NOT NULL,
    entries INTEGER NOT NULL,     -- how many numbers were given, those of entries that left as well
    one_person INTEGER NOT NULL,  -- whether all entries are one person's, who then pays for each
    asked_ms INTEGER NOT NULL,    -- when the app asked to join it
    url TEXT NOT NULL,            -- who its answers go to
    charge_micro INTEGER NOT NULL,-- what it counts against the budget; 0 until it is joined
    payload BLOB NOT NULL,        -- the bytes that were signed, verified on joining; empty until they are known
    stratum BLOB NOT NULL,        -- what the app told, until the survey is known
    reason TEXT NOT NULL,         -- why it was refused
    handed_over INTEGER NOT NULL  -- whether a life that was left is counted by another store as well
) WITHOUT ROWID;

CREATE TABLE entries (
    survey BLOB NOT NULL REFERENCES surveys,
    number INTEGER NOT NULL,
    answered INTEGER NOT NULL,    -- every node that ends by this period is answered or dropped
    delay_ms INTEGER NOT NULL,    -- drawn for the next closing
    standing INTEGER NOT NULL,    -- what the next closing that is answered says of those before it
    stratum INTEGER NOT NULL,     -- public, as the app told it
    stratum_changes INTEGER NOT NULL,
    dropped INTEGER NOT NULL,     -- closings past grace
    private BLOB NOT NULL,        -- group, slots, mutations, states: encrypted if the app brings a key
    PRIMARY KEY (survey, number)
) WITHOUT ROWID;

CREATE TABLE departed (           -- entries that left: their numbers are never given again
    survey BLOB NOT NULL REFERENCES surveys,
    number INTEGER NOT NULL,
    PRIMARY KEY (survey, number)
) WITHOUT ROWID;

CREATE TABLE drawn (              -- of entries that report only some nodes of a track: those not yet answered
    survey BLOB NOT NULL,
    entry INTEGER NOT NULL,
    nodes BLOB NOT NULL,
    PRIMARY KEY (survey, entry),
    FOREIGN KEY (survey, entry) REFERENCES entries
) WITHOUT ROWID;

CREATE TABLE closings (           -- what an entry answered at a period's close
    survey BLOB NOT NULL,
    entry INTEGER NOT NULL,
    period INTEGER NOT NULL,
    batch INTEGER NOT NULL,       -- the first period of those that are uploaded together; 0 once acknowledged
    id BLOB NOT NULL,             -- empty once acknowledged
    standing INTEGER NOT NULL,
    stratum INTEGER NOT NULL,
    refused INTEGER NOT NULL,     -- how often the server refused it; who was refused least is sent first
    reports BLOB NOT NULL,        -- with the entry's group: encrypted if the app brings a key
    PRIMARY KEY (survey, entry, period),
    FOREIGN KEY (survey, entry) REFERENCES entries
) WITHOUT ROWID;
CREATE INDEX waiting ON closings (survey, entry, period) WHERE batch > 0;

CREATE TABLE hand_over (          -- from this store, and to it
    role TEXT PRIMARY KEY,        -- giver, or taker
    secret BLOB NOT NULL,         -- its private key, encrypted if the app brings one; a taker's goes with the parcel
    peer BLOB NOT NULL,           -- a giver's invitation, a taker's giver
    parcel BLOB NOT NULL          -- a giver's sealed parcel; a taker's hash of the one that it has unpacked
) WITHOUT ROWID;

CREATE TABLE drops (              -- what was not kept or not sent, by its reason
    reason TEXT PRIMARY KEY,
    count INTEGER NOT NULL
) WITHOUT ROWID;
"""
