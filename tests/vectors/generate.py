"""Writes the test vectors beside this file: `python -m tests.vectors.generate`.

They fix the protocol's bytes for implementations in other languages. A changed vector is a changed protocol:
raise its version.
"""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from changeling_protocol import (
    Coins,
    CustomResponse,
    EntrySecret,
    MutationSpace,
    Node,
    Odds,
    Report,
    SealingKey,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Track,
    UnaryEncoding,
    seal,
)
from changeling_protocol.randomizers import randomizer_as_fields
from changeling_protocol.refusal import Refusal
from changeling_protocol.sealing import open_envelope
from changeling_protocol.upload import encode_upload
from changeling_protocol.wire import (
    STATUS,
    ErrorAnswer,
    ErrorCode,
    encode_acknowledgement,
    encode_key_list,
    encode_upload_request,
    survey_path,
)
from changeling_protocol.wire.paths import KEYS, UPLOADS
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..protocol.examples import AUTHORITY, PINNED, mixed, survey

HERE = Path(__file__).parent
PRIVATE = X25519PrivateKey.from_private_bytes(bytes(range(100, 132)))
SEALING_KEY = SealingKey(PRIVATE.public_key().public_bytes_raw(), 1_800_000_000, 1_900_000_000)
SECRET = EntrySecret(1, bytes(range(32)))
RANDOMIZERS = (
    SignedSubset(MutationSpace(3), Odds(20, 1), spoken=Fraction(2, 7)),
    SignedSubset(MutationSpace(4), Odds(20, 1), pluses=2, spoken=Fraction(1)),
    SignedSubset(MutationSpace(16), Odds(3, 1), spoken=Fraction(1, 3)),
    SubsetSelection(StateSpace(5), Odds(3, 1), 2),
    UnaryEncoding(StateSpace(5, null=False), Odds(3, 1)),
    CustomResponse(StateSpace(2), ((3, 1, 1), (1, 2, 1), (1, 1, 4))),
)
BOUNDS = [1, 2, 6, 255, 256, 257, 10**6, 2**64 - 1, 2**64, 2**300]


def deterministic() -> dict[str, Any]:
    """Every vector that the protocol determines, by file name."""
    return {
        "coins": _coins(),
        "secrets": _secrets(),
        "symbols": _symbols(),
        "signed": _signed(),
        "upload": _upload(),
        "bodies": _bodies(),
    }


def _coins() -> dict[str, Any]:
    coins = Coins(SECRET.key, b"context")
    drawn = [str(coins.below(n)) for n in BOUNDS]
    return {"key": SECRET.key.hex(), "context": b"context".hex(), "below": [str(n) for n in BOUNDS], "drawn": drawn}


def _secrets() -> dict[str, Any]:
    id_ = survey().id
    subkeys = SECRET.subkeys(id_)
    return {
        "period": SECRET.period,
        "key": SECRET.key.hex(),
        "survey": id_.hex(),
        "ratchet": {str(i): SECRET.advanced(i).key.hex() for i in (2, 3, 10)},
        "report ids": [
            {"track": track, "node": [node.start, node.end], "id": subkeys.report_id(track, node).hex()}
            for track, node in ((0, Node(0, 1)), (1, Node(0, 2)), (65535, Node(6, 8)))
        ],
        "first below 2^32": {
            "delay of period 3": subkeys.delay_coins(3).below(2**32),
            "group": subkeys.group_coins().below(2**32),
            "nodes of track 2": subkeys.node_coins(2).below(2**32),
        },
    }


def _symbols() -> list[dict[str, Any]]:
    subkeys = SECRET.subkeys(survey().id)
    node = Node(2, 3)
    return [
        {
            "randomizer": randomizer_as_fields(randomizer),
            "answers": randomizer.space.answers,
            "track": number,
            "node": [node.start, node.end],
            "symbols by true input": [
                randomizer.respond(true, subkeys.response_coins(number, node, true))
                for true in range(randomizer.space.size)
            ],
        }
        for number, randomizer in enumerate((*(track.randomizer for track in _tracks()), *RANDOMIZERS))
    ]


def _tracks() -> tuple[Track, ...]:
    return (*survey().plan.tracks, *mixed(3, 8).tracks)


def _signed() -> dict[str, Any]:
    return {
        "authority": PINNED[0].hex(),
        "surveys": [
            {"id": each.id.hex(), "epsilon_micro": each.epsilon_micro, "signed": each.signed_by(AUTHORITY).hex()}
            for each in (survey(), survey(mixed(3, 8)))
        ],
        "sealing key": {"id": SEALING_KEY.id.hex(), "signed": SEALING_KEY.signed_by(AUTHORITY).hex()},
    }


def _upload() -> dict[str, Any]:
    each = survey(mixed(3, 8))
    span, reports = Node(2, 6), [Report(0, 4, bytes(range(16)), 3), Report(0, 6, bytes(range(16, 32)), 0)]
    return {
        "survey": each.signed_by(AUTHORITY).hex(),
        "group": 0,
        "span": [span.start, span.end],
        "reports": [{"track": r.track, "node": r.node, "id": r.id.hex(), "symbol": r.symbol} for r in reports],
        "plaintext": encode_upload(each.plan, 0, span, reports).hex(),
    }


def _bodies() -> dict[str, Any]:
    envelopes = [bytes(range(40)), b"", bytes(300)]
    refused = {0: Refusal.UNKNOWN_KEY, 2: Refusal.TOO_LARGE}
    keys = [SEALING_KEY.signed_by(AUTHORITY), bytes(20)]
    error = ErrorAnswer(ErrorCode.TOO_LARGE, "a body here has at most 1048576 bytes")
    return {
        "paths": {"uploads": UPLOADS, "keys": KEYS, "survey": survey_path(survey().id.hex())},
        "upload request": {
            "envelopes": [each.hex() for each in envelopes],
            "body": encode_upload_request(envelopes).hex(),
        },
        "acknowledgement": {
            "refused": {str(i): r.value for i, r in refused.items()},
            "body": encode_acknowledgement(refused).hex(),
        },
        "key list": {"signed": [key.hex() for key in keys], "body": encode_key_list(keys).hex()},
        "error": {"status": STATUS[error.code], "body": error.encode().decode()},
        "error codes": {code.value: STATUS[code] for code in ErrorCode},
        "reasons of refusal": [reason.value for reason in Refusal],
    }


def _seals() -> dict[str, Any]:
    plaintext = bytes.fromhex(_upload()["plaintext"])
    envelope = seal(plaintext, survey(mixed(3, 8)).id, SEALING_KEY)
    assert open_envelope(envelope, PRIVATE) == plaintext
    return {"private": PRIVATE.private_bytes_raw().hex(), "envelope": envelope.hex(), "plaintext": plaintext.hex()}


def main() -> None:
    """Deterministic vectors are written anew; the seal, which is random, only where there is none."""
    for name, content in deterministic().items():
        _write(name, content)
    if not (HERE / "seals.json").exists():
        _write("seals", _seals())


def _write(name: str, content: Any) -> None:
    (HERE / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
