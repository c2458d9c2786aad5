"""Accepting uploads: checked from outside, appended to the log, acknowledged when on disk."""

from .acceptance import refusal_of, refusals_of, takes_whole
from .committer import Committer
from .registry import PublishedSurvey, Registry

__all__ = ["Committer", "PublishedSurvey", "Registry", "refusal_of", "refusals_of", "takes_whole"]
