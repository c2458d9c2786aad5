"""Accepting uploads: checked from outside, appended to the log, acknowledged when on disk."""

from .committer import USUAL_STORE_BYTES, Committer, LogWriter, writer_for
from .registry import (
    PublishedSurvey,
    Registry,
    most_envelope_bytes,
    refusal_of,
    refusals_of,
    survey_of,
)

__all__ = [
    "USUAL_STORE_BYTES",
    "Committer",
    "LogWriter",
    "PublishedSurvey",
    "Registry",
    "most_envelope_bytes",
    "refusal_of",
    "refusals_of",
    "survey_of",
    "writer_for",
]
