"""Data that come and go: the fully dynamic mechanism, and insertions minus deletions to compare it with."""
