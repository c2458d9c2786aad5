"""What Schemathesis has to be told of our bodies: MessagePack, what an authority signs, and which survey there is.

A process of its own loads this by the name in $SCHEMATHESIS_HOOKS. The survey's id stands in $SURVEY.
"""

import os

import msgpack
import schemathesis
from changeling_protocol import Calendar, EarlyEnd, SealingKey
from changeling_protocol.wire import MSGPACK
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import strategies as st

from tests.aggregator.devices import body
from tests.aggregator.serving import texts
from tests.protocol.examples import AUTHORITY, survey

SURVEY = os.environ["SURVEY"]
STRANGER = Ed25519PrivateKey.from_private_bytes(bytes(32))
OTHERS = [survey(calendar=Calendar(2_000_000_000, 60, 8)).asking(question=f"{number}?") for number in range(3)]
SIGNED = [
    each.signed_by(authority)
    for authority in (AUTHORITY, STRANGER)
    for each in (*OTHERS, SealingKey(bytes(31) + b"\7", 0, 2**40), EarlyEnd(bytes.fromhex(SURVEY), 99))
]
schemathesis.openapi.media_type(
    MSGPACK,
    st.one_of(
        st.sampled_from(SIGNED),
        st.lists(st.binary(max_size=200), max_size=5).map(lambda envelopes: body(*envelopes)),
        st.binary(max_size=100),
    ),
)


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    """Half of the surveys that are asked for are one that is there, or may be published."""
    if path_parameters and str(path_parameters.get("survey", ""))[:1] in set("01234567"):
        asked = [SURVEY, *(each.id.hex() for each in OTHERS)] if context.operation.method == "put" else [SURVEY]
        path_parameters["survey"] = asked[ord(path_parameters["survey"][-1:] or "0") % len(asked)]
    return path_parameters


@schemathesis.deserializer(MSGPACK)
def unpack(_, response):
    return texts(msgpack.unpackb(response.content))
