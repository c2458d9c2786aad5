"""Randomizers: exact odds, samplers and losses."""
