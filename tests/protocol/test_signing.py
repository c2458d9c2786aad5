"""Signed objects: who can sign, and who cannot."""

import pytest
from changeling_protocol import BadSignature, authority_key, encode
from changeling_protocol.signing import payload_bytes, verified

from .examples import AUTHORITY, PINNED

PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, PRIME) % PRIME
IDENTITY = (0, 1)


def added(one, other):
    """The sum of two points of edwards25519, by the curve's law."""
    (x1, y1), (x2, y2) = one, other
    k = D * x1 * x2 * y1 * y2 % PRIME
    return (
        (x1 * y2 + x2 * y1) * pow(1 + k, -1, PRIME) % PRIME,
        (y1 * y2 + x1 * x2) * pow(1 - k, -1, PRIME) % PRIME,
    )


def times(number, point):
    total = IDENTITY
    while number:
        total = added(total, point) if number & 1 else total
        point, number = added(point, point), number >> 1
    return total


def some_points():
    """Points of the curve, of which some have no small order but for their torsion."""
    for y in range(2, 60):
        squared = (y * y - 1) * pow(D * y * y + 1, -1, PRIME) % PRIME
        x = pow(squared, (PRIME + 3) // 8, PRIME)
        for root in (x, x * pow(2, (PRIME - 1) // 4, PRIME) % PRIME):
            if (root * root - squared) % PRIME == 0:
                yield root, y


def small_order():
    """Every spelling, canonical or not, of every point whose order divides eight."""
    points = set()
    for point in some_points():
        torsion = times(ORDER, point)
        points |= {times(k, torsion) for k in range(8)}
        if len(points) == 8:
            break
    assert len(points) == 8
    values = {value for _, y in points for value in (y, y + PRIME) if value < 2**255}
    return sorted((value | sign << 255).to_bytes(32, "little") for value in values for sign in (0, 1))


def test_no_key_of_low_order_is_an_authority():
    """There are fourteen spellings of such keys; the usual placeholder, all zeros, is one."""
    low = small_order()
    assert len(low) == 14
    assert bytes(32) in low
    for key in low:
        with pytest.raises(ValueError, match="low order"):
            authority_key(key)


def test_an_authority_s_key_is_taken():
    assert authority_key(PINNED[0]).public_bytes_raw() == PINNED[0]
    with pytest.raises(ValueError, match="32 bytes"):
        authority_key(PINNED[0][:31])


def test_nobody_signs_without_a_private_key():
    """Under the identity anybody's signature holds, so it is no authority; another beside it still is."""
    identity = b"\1" + bytes(31)
    payload = payload_bytes("survey", {"question": "?"})
    forged = encode({"payload": payload, "signature": identity + bytes(32)})
    with pytest.raises(BadSignature):
        verified("survey", forged, [identity])
    genuine = encode({"payload": payload, "signature": AUTHORITY.sign(payload)})
    assert verified("survey", genuine, [identity, PINNED[0]]) == {"question": "?"}
