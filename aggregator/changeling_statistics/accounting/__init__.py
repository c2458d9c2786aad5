"""The cost of a survey to an entry, beyond the pure epsilon. Pure: no clock, no HTTP, no database."""
