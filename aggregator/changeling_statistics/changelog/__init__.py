"""Changelogs of a population: read from files, frames and rows, checked, and replayed to any time."""
