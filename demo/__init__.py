"""`make demo`: the whole product on one machine, on real changelogs."""
