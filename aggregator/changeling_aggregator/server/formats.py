"""The forms of an answer to a reader: JSON, MessagePack or CSV, by `format=` or by what the client accepts."""

import csv
import io
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgpack
from changeling_protocol.wire import JSON, MSGPACK
from starlette.requests import Request


class Format(StrEnum):
    """A form that answers have."""

    JSON = "json"
    MSGPACK = "msgpack"
    CSV = "csv"


MEDIA_TYPES = {Format.JSON: JSON, Format.MSGPACK: MSGPACK, Format.CSV: "text/csv"}


def format_of(request: Request) -> Format:
    """What a request asks for: `format=`, else the first it accepts that there is, else JSON. Raises ValueError."""
    if (asked := request.query_params.get("format")) is not None:
        try:
            return Format(asked)
        except ValueError:
            raise ValueError(f"format is {', '.join(Format)}, got {asked[:40]!r}") from None
    for accepted in request.headers.get("accept", "")[:1000].split(","):
        for each, media_type in MEDIA_TYPES.items():
            if accepted.partition(";")[0].strip().lower() == media_type:
                return each
    return Format.JSON


def encoded(content: Mapping[str, Any], form: Format) -> bytes:
    """An answer in a form. In CSV it is a row for each estimate and answer, without the nodes and covariances."""
    if form is Format.JSON:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if form is Format.MSGPACK:
        packed: bytes = msgpack.packb(content)
        return packed
    return _rows(content).encode()


_COLUMNS = ("upper_bound", "provisional", "enrolled", "heard", "false_entries")


def _rows(content: Mapping[str, Any]) -> str:
    estimates = content.get("series", [content])
    when = ("after", "until") if any("after" in each for each in estimates) else ("period", "time")
    ends = [name for name in ("intervals", "simultaneous", "bounds") if any(name in each for each in estimates)]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(
        [*when, "answer", "estimate", "standard_error"]
        + [f"{name}_{side}" for name in ends for side in ("low", "high")]
        + [*_COLUMNS, "epsilon"]
    )
    for each in estimates:
        for at, answer in enumerate(content["answers"]):
            figures = [each["values"] and each["values"][at], (each.get("standard_errors") or {at: None})[at]]
            sides = [side for name in ends for side in (each[name][at] if name in each else (None, None))]
            rest = [each.get(name) for name in _COLUMNS]
            writer.writerow([*(each[name] for name in when), answer, *figures, *sides, *rest, content["epsilon"]])
    return written.getvalue()
