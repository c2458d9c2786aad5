"""Sealing an upload to the server's key, once, with HPKE (RFC 9180).

An envelope is version ‖ survey id ‖ key id ‖ sealed bytes; the three head fields are bound to the seal as
HPKE's info, so a seal moved under another head does not open. Base mode: it says nothing of the sender.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from . import hpke
from .canonical import Fields, holds_booleans
from .errors import CannotOpen, MalformedBytes
from .quantities import SurveyId, UnixSeconds
from .signing import check_order, signed, unverified, verified
from .survey import ID_BYTES
from .version import VERSION

KIND = "sealing-key"
HEAD_BYTES = 1 + 2 * ID_BYTES
SEAL_BYTES = hpke.ENC_BYTES + hpke.TAG_BYTES
"""What HPKE adds to the plaintext."""


@dataclass(frozen=True)
class SealingKey:
    """A server's public key, good for sealing from `begins` until `expires`, in Unix seconds."""

    public: bytes
    begins: int
    expires: int

    def __post_init__(self) -> None:
        if len(self.public) != 32:
            raise ValueError(f"an X25519 public key has 32 bytes, got {len(self.public)}")
        if not 0 <= self.begins < self.expires < 2**63:  # stores keep both in 64 bits
            raise ValueError(f"a key must begin before it expires, below 2^63, got {self.begins} and {self.expires}")
        check_order(self.public)

    @cached_property
    def id(self) -> bytes:
        """`key_id` of the public key: 16 bytes."""
        return key_id(self.public)

    def valid_at(self, time: UnixSeconds) -> bool:
        """Whether uploads may be sealed to it at this Unix time, in seconds."""
        return self.begins <= time <= self.expires

    def signed_by(self, authority: Ed25519PrivateKey) -> bytes:
        """The key with its dates as a signed object, as a server publishes it."""
        fields = {"public": self.public, "begins": self.begins, "expires": self.expires}
        return signed(KIND, fields, authority)

    @classmethod
    def from_signed(cls, encoded: bytes, authority: Iterable[bytes]) -> "SealingKey":
        """The key in signed bytes.

        authority: the pinned public keys. Raises BadSignature or MalformedBytes.
        """
        return _from_fields(verified(KIND, encoded, authority))

    @classmethod
    def unverified(cls, encoded: bytes) -> "SealingKey":
        """The key in signed bytes, whoever signed them. Raises MalformedBytes."""
        return _from_fields(unverified(KIND, encoded))


@dataclass(frozen=True, slots=True)
class EnvelopeHead:
    """What can be read of an envelope without opening it: protocol version, survey id and key id."""

    version: int
    survey: SurveyId
    key: bytes


def _from_fields(fields: Fields) -> SealingKey:
    match fields:
        case {"public": bytes(public), "begins": int(begins), "expires": int(expires), **rest} if not (
            rest or holds_booleans(fields)
        ):
            try:
                return SealingKey(public, begins, expires)
            except ValueError as error:
                raise MalformedBytes(f"not a sealing key: {error}") from error
    raise MalformedBytes("a sealing key is public, begins and expires")


def key_id(public: bytes) -> bytes:
    """The first 16 bytes of the SHA-256 of a public sealing key."""
    return sha256(public).digest()[:ID_BYTES]


def seal(plaintext: bytes, survey: SurveyId, key: SealingKey) -> bytes:
    """The envelope of an upload's plaintext: HEAD_BYTES + SEAL_BYTES longer, and different each time.

    survey: the survey's 16-byte id.
    """
    head = VERSION.to_bytes(1) + survey + key.id
    public = X25519PublicKey.from_public_bytes(key.public)
    return head + hpke.seal(plaintext, public, head, X25519PrivateKey.generate())


def head_of(envelope: bytes) -> EnvelopeHead:
    """The head of an envelope, which is not opened. Raises MalformedBytes for one too short to hold an upload."""
    if len(envelope) <= HEAD_BYTES + SEAL_BYTES:
        raise MalformedBytes(f"an envelope is longer than {HEAD_BYTES + SEAL_BYTES} bytes")
    return _head(envelope[:HEAD_BYTES])


@lru_cache(maxsize=1024)
def _head(head: bytes) -> EnvelopeHead:
    """As most envelopes at a time have the same few heads, these are taken apart once."""
    return EnvelopeHead(head[0], SurveyId(head[1 : 1 + ID_BYTES]), head[1 + ID_BYTES :])


def open_envelope(envelope: bytes, private: X25519PrivateKey) -> bytes:
    """The upload's plaintext. Raises CannotOpen."""
    try:
        return _unseal(envelope[HEAD_BYTES:], private, envelope[:HEAD_BYTES])
    except (InvalidTag, ValueError) as error:
        raise CannotOpen("the envelope does not open with this key") from error


def _library_unseal() -> Callable[[bytes, X25519PrivateKey, bytes], bytes]:
    """As `hpke.unseal`, where `cryptography` brings HPKE: it opens a fifteenth faster than what stands here."""
    try:
        from cryptography.hazmat.primitives import hpke as library
    except ImportError:
        return hpke.unseal
    suite = library.Suite(library.KEM.X25519, library.KDF.HKDF_SHA256, library.AEAD.AES_128_GCM)
    return lambda sealed, private, info: suite.decrypt(sealed, private, info=info)


_unseal = _library_unseal()
