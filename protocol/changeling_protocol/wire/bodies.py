"""Bodies of requests and answers: how long they may be, and their media types."""

MOST_BODY_BYTES = 2**20
"""The most bytes of a body that a device sends or reads, a signed survey included."""

MSGPACK = "application/msgpack"
"""The media type of canonical MessagePack, and of signed objects, which are canonical MessagePack too."""

JSON = "application/json"
"""The media type of what operators and analysts read."""

PROBLEM = "application/problem+json"
"""The media type of every error."""
