"""What client and server say to each other over HTTP: paths, bodies, media types and errors, each written once here.

A body that a device sends or reads is canonical MessagePack; what operators and analysts read is JSON. How requests
are sent and answered is the business of the client and of the server.
"""

from .acknowledgement import decode_acknowledgement, encode_acknowledgement
from .bodies import JSON, MOST_BODY_BYTES, MSGPACK, PROBLEM
from .error_answer import ADVICE, STATUS, ErrorAnswer, ErrorCode
from .key_list import decode_key_list, encode_key_list
from .paths import survey_path
from .upload_request import (
    MOST_ENVELOPES,
    MOST_ENVELOPES_TAKEN,
    common_head,
    decode_upload_request,
    encode_upload_request,
    envelopes_in,
)

__all__ = [
    "ADVICE",
    "JSON",
    "MOST_BODY_BYTES",
    "MOST_ENVELOPES",
    "MOST_ENVELOPES_TAKEN",
    "MSGPACK",
    "PROBLEM",
    "STATUS",
    "ErrorAnswer",
    "ErrorCode",
    "common_head",
    "decode_acknowledgement",
    "decode_key_list",
    "decode_upload_request",
    "encode_acknowledgement",
    "encode_key_list",
    "encode_upload_request",
    "envelopes_in",
    "survey_path",
]
