"""Early ends: signed by the authority, and read back as they were."""

import pytest
from changeling_protocol import BadSignature, EarlyEnd
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .examples import AUTHORITY, PINNED, survey

END = EarlyEnd(survey().id, 3)


def test_an_end_comes_back_from_its_signed_bytes():
    """With the authority's key checked, or not."""
    encoded = END.signed_by(AUTHORITY)
    assert EarlyEnd.from_signed(encoded, PINNED) == EarlyEnd.unverified(encoded) == END
    with pytest.raises(BadSignature):
        EarlyEnd.from_signed(END.signed_by(Ed25519PrivateKey.from_private_bytes(bytes(32))), PINNED)
