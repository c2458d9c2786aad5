"""Accepting uploads: checked from outside, appended to the log, acknowledged when on disk."""

from .committer import USUAL_STORE_BYTES, Committer
from .registry import (
    PublishedSurvey,
    Registry,
    most_envelope_bytes,
    refusal_of,
    refusals_of,
    takes_whole,
)

__all__ = [
    "USUAL_STORE_BYTES",
    "Committer",
    "PublishedSurvey",
    "Registry",
    "most_envelope_bytes",
    "refusal_of",
    "refusals_of",
    "takes_whole",
]
