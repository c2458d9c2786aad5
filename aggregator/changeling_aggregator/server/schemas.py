"""The words of JSON Schema that say what our bodies are. A record has the members that are named, and no others."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
TRUTH: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
PERIOD: Schema = {"type": "integer", "minimum": 0, "description": "A period's number; the first is 1."}
INSTANT: Schema = {"type": "string", "format": "date-time"}
ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "16 bytes in hexadecimal digits."}
BYTES: Schema = {"type": "string", "format": "binary", "description": "MessagePack's bin."}


def record(optional: Mapping[str, Schema] | None = None, **members: Schema) -> Schema:
    """An object with these members. optional: and perhaps these."""
    properties = {**members, **(optional or {})}
    return {"type": "object", "properties": properties, "required": [*members], "additionalProperties": False}


def listed(each: Schema, most: int | None = None) -> Schema:
    """A list of these, at most so many."""
    return {"type": "array", "items": each, **({} if most is None else {"maxItems": most})}


def either(*schemas: Schema) -> Schema:
    """One of these."""
    return {"anyOf": [*schemas]}


def or_null(schema: Schema) -> Schema:
    """This, or nothing."""
    return either(schema, {"type": "null"})


SIGNED: Schema = record(payload=BYTES, signature=BYTES)
"""What the authority signed: the payload is canonical MessagePack itself."""
COUNTS: Schema = {"type": "object", "additionalProperties": COUNT}
"""How many, by reason."""
