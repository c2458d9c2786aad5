"""Populations, experiments and the survey designer's command line."""
