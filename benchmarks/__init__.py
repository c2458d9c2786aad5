"""Measurements of what this project promises; each module has `measure() -> dict[str, float]`."""
