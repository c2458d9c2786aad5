"""What a survey can cost an entry beyond the pure epsilon. Pure: no clock, no HTTP, no database."""
