"""Types for what would otherwise all be `int`, `float` or `bytes`, so that a type checker tells them apart.

They cost nothing when the program runs. Whoever draws, reads or computes such a value names its type once.
"""

from typing import NewType

SurveyId = NewType("SurveyId", bytes)
"""The first 16 bytes of the SHA-256 of a survey's signed bytes."""

EntryNumber = NewType("EntryNumber", int)
"""Which of the entries that an app holds for one survey, from 0 on."""

TrackNumber = NewType("TrackNumber", int)
"""A track's number in its release plan, from 0 on through all groups."""

NodeNumber = NewType("NodeNumber", int)
"""A node's number in its track, from 1 on."""

StratumNumber = NewType("StratumNumber", int)
"""A combination of the values of a survey's breakdowns, from 0 on."""

UnixSeconds = NewType("UnixSeconds", float)
"""Seconds since 1970, in UTC, whole or not: what clocks show and the calendar is asked about."""

UnixMilliseconds = NewType("UnixMilliseconds", int)
"""Milliseconds since 1970, in UTC: what is stored."""
