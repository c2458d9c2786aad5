"""The schemas of what readers ask and are answered: the parameters that `questions` takes, the content of `answers`."""

from collections.abc import Mapping

from changeling_protocol.wire import ErrorCode

from ..store.tokens import TokenScope
from .described import Described
from .formats import MEDIA_TYPES, Format
from .questions import Kind, Method, parameters_of
from .schemas import COUNT, ID, INSTANT, NUMBER, PERIOD, TEXT, TRUTH, Schema, either, listed, or_null, record

_PERIODS: Schema = {"type": "integer", "minimum": 0, "maximum": 999_999_999}
_PARAMETERS: Mapping[str, Schema] = {
    "after": {**_PERIODS, "description": "The period at whose end a window starts."},
    "confidence": {"type": "number", "minimum": 0.5, "maximum": 0.999999},
    "covariance": {"type": "string", "enum": ["true", "false"], "default": "false"},
    "format": {"type": "string", "enum": [*Format], "description": "Else the first that Accept names, or JSON."},
    "method": {"type": "string", "enum": [*Method], "default": Method.ONLINE.value},
    "period": {**_PERIODS, "description": "By default the last of which anything is shown."},
    "stratum": {**listed({"type": "string", "pattern": "^[^:]+:.*$"}), "description": "NAME:VALUE, once or more."},
    "time": {"type": "string", "description": "ISO 8601, or Unix seconds, instead of a period."},
    "until": {**_PERIODS, "description": "By default the last of which anything is shown."},
    "width": {**_PERIODS, "minimum": 1, "description": "In periods."},
}
_NEEDED = {"after": Kind.CHANGE, "width": Kind.WINDOWS}

_BOUNDS = {"type": "array", "items": or_null(NUMBER), "minItems": 2, "maxItems": 2}
_USED = record(track=COUNT, start=PERIOD, end=PERIOD, reports=COUNT, sealed=TRUTH)
_DIAGNOSTICS = record(
    impossible=TRUTH,
    p_value=NUMBER,
    false_alarm_rate=NUMBER,
    tested_nodes=COUNT,
    untested_nodes=COUNT,
    suspects=listed(record(track=COUNT, start=PERIOD, end=PERIOD, p_value=NUMBER)),
)
_HEAD = {
    "survey": ID,
    "question": TEXT,
    "answers": listed(TEXT),
    "epsilon": NUMBER,
    "last_period": PERIOD,
    "revision": COUNT,
    "method": {"type": "string", "enum": [*Method]},
    "biased": TRUTH,
    "confidence": or_null(NUMBER),
    "diagnostics": _DIAGNOSTICS,
    "nodes": listed(_USED),
}
_DRIFT = {"drift": NUMBER}
_FIGURES = {
    "values": listed(NUMBER),
    "standard_errors": listed(or_null(NUMBER)),
    "upper_bound": TRUTH,
    "provisional": TRUTH,
    "enrolled": COUNT,
    "heard": COUNT,
    "response_rate": NUMBER,
    "bounds": listed(_BOUNDS),
    "false_entries": COUNT,
}
_ASKED_FOR = {"intervals": listed(_BOUNDS), "simultaneous": listed(_BOUNDS), "covariance": listed(listed(NUMBER))}
_NO_FIGURES = {
    "values": {"type": "null"},
    "missing": or_null(record(track=COUNT, start=PERIOD, end=PERIOD)),
}


def described_as(kind: Kind) -> Described:
    """What is asked and answered of this kind."""
    answer = _answer(kind)
    gives = {form: {"type": "string"} if form is Format.CSV else answer for form in Format}
    return Described(
        gives={200: {MEDIA_TYPES[form]: schema for form, schema in gives.items()}, 304: {}},
        query={name: _PARAMETERS[name] for name in parameters_of(kind)},
        needed={name for name, of_kind in _NEEDED.items() if of_kind is kind},
        refuses=(ErrorCode.INVALID, ErrorCode.NOT_ESTIMABLE),
        scope=TokenScope.READ,
        open_too=True,
    )


def _answer(kind: Kind) -> Schema:
    when = {"period": PERIOD, "time": INSTANT} if kind in (Kind.HISTOGRAM, Kind.SERIES) else _WINDOW
    if kind in (Kind.HISTOGRAM, Kind.CHANGE):
        return record({**_DRIFT, **_ASKED_FOR}, **_HEAD, **when, **_FIGURES)
    series = listed(either(record(_ASKED_FOR, **when, **_FIGURES), record(**when, **_NO_FIGURES)))
    return record(_DRIFT, **_HEAD, series=series)


_WINDOW = {"after": PERIOD, "until": PERIOD}
