"""Measures of the house itself: how long its files are, what an addition touches, what is documented and typed."""
