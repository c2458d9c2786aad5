-- The tables of a store of version 3, as an SDK of that version made them.
CREATE TABLE clock (
    seen_ms INTEGER NOT NULL,
    lead_ms INTEGER NOT NULL
);
CREATE TABLE surveys (
    id BLOB PRIMARY KEY,
    payload BLOB NOT NULL,
    epsilon_micro INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE entries (
    survey BLOB NOT NULL REFERENCES surveys,
    number INTEGER NOT NULL,
    track_group INTEGER NOT NULL,
    answered INTEGER NOT NULL,
    delay_ms INTEGER NOT NULL,
    used BLOB,
    score INTEGER,
    mutations INTEGER NOT NULL,
    first_ms INTEGER,
    dropped INTEGER NOT NULL,
    standing INTEGER NOT NULL,
    stratum INTEGER NOT NULL,
    stratum_changes INTEGER NOT NULL,
    PRIMARY KEY (survey, number)
) WITHOUT ROWID;
CREATE TABLE drawn_nodes (
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
    number INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    state INTEGER NOT NULL,
    PRIMARY KEY (survey, entry, number),
    FOREIGN KEY (survey, entry) REFERENCES entries
) WITHOUT ROWID;
CREATE TABLE closings (
    survey BLOB NOT NULL,
    entry INTEGER NOT NULL,
    period INTEGER NOT NULL,
    id BLOB NOT NULL,
    standing INTEGER NOT NULL,
    stratum INTEGER NOT NULL,
    PRIMARY KEY (survey, entry, period),
    FOREIGN KEY (survey, entry) REFERENCES entries
) WITHOUT ROWID;
CREATE TABLE reports (
    survey BLOB NOT NULL,
    entry INTEGER NOT NULL,
    period INTEGER NOT NULL,
    track INTEGER NOT NULL,
    node INTEGER NOT NULL,
    symbol BLOB NOT NULL,
    PRIMARY KEY (survey, entry, period, track),
    FOREIGN KEY (survey, entry, period) REFERENCES closings ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TABLE sealing_keys (
    signed BLOB PRIMARY KEY
) WITHOUT ROWID;
