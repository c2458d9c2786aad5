"""Writes the test vectors beside this file: `python -m tests.vectors.generate`.

They fix the protocol's bytes for implementations in other languages. A changed vector is a changed protocol:
raise its version.
"""

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from changeling_protocol import (
    Closing,
    CustomResponse,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Node,
    Odds,
    ReleasePlan,
    Report,
    SealingKey,
    SignedSubset,
    Standing,
    StateSpace,
    SubsetSelection,
    Track,
    UnaryEncoding,
    seal,
)
from changeling_protocol.ending import EarlyEnd
from changeling_protocol.joint import agreeing
from changeling_protocol.plan_fields import plan_as_fields
from changeling_protocol.quantities import NodeNumber, StratumNumber, TrackNumber
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

from ..protocol.examples import AUTHORITY, PINNED, joint_plan, mixed, survey

HERE = Path(__file__).parent
PRIVATE = X25519PrivateKey.from_private_bytes(bytes(range(100, 132)))
SEALING_KEY = SealingKey(PRIVATE.public_key().public_bytes_raw(), 1_800_000_000, 1_900_000_000)
END = EarlyEnd(survey().id, 3)
RANDOMIZERS = (
    KaryResponse(MutationSpace(3), Odds(3, 1)),
    KaryResponse(StateSpace(3), Odds(5, 1)),
    KaryResponse(MutationSpace(2, repeats=True), Odds(9, 2)),
    KaryChange(MutationSpace(2), Odds(7, 2)),
    KaryChange(MutationSpace(3, null=False), Odds(20, 1)),
    SignedSubset(MutationSpace(3), Odds(20, 1), spoken=Fraction(2, 7)),
    SignedSubset(MutationSpace(4), Odds(20, 1), pluses=2, spoken=Fraction(1)),
    SignedSubset(MutationSpace(4, null=False), Odds(20, 1), spoken=Fraction(1, 2)),
    SignedSubset(MutationSpace(16), Odds(3, 1), spoken=Fraction(1, 3)),
    SignedSubset(MutationSpace(63), Odds(2**40, 3), spoken=Fraction(1, 10**6)),
    SubsetSelection(StateSpace(5), Odds(3, 1), 2),
    UnaryEncoding(StateSpace(5, null=False), Odds(3, 1)),
    CustomResponse(StateSpace(2), ((3, 1, 1), (1, 2, 1), (1, 1, 4))),
)
ANY = Odds(2, 1)
JOINT_GROUPS = (
    joint_plan(3, 8).groups[0],
    Group.jointly([Track(1, SignedSubset(MutationSpace(2), ANY), 0, 8)], Joint(Odds(3, 1), 1, (1,), (2,))),
    Group.jointly([Track(1, KaryChange(MutationSpace(2), ANY), 0, 8)], Joint(Odds(20, 1), 2, (1,), (3,))),
    Group.jointly(
        [
            Track(2, SubsetSelection(StateSpace(3, null=False), ANY, 2), 0, 8, reported=1),
            Track(1, SignedSubset(MutationSpace(3, null=False), ANY, spoken=Fraction(1, 2)), 1, 8),
        ],
        Joint(Odds(2981, 1000), 3, (3, 2), (1, 2)),
    ),
)


def deterministic() -> dict[str, Any]:
    """Every vector that the protocol determines, by file name."""
    return {
        "symbols": _symbols(),
        "joint": _joint(),
        "signed": _signed(),
        "upload": _upload(),
        "bodies": _bodies(),
    }


def _symbols() -> list[dict[str, Any]]:
    """Which symbol a drawn integer selects. Whoever draws it uniformly below the total has the randomizer's law."""
    return [
        {
            "randomizer": randomizer_as_fields(randomizer),
            "answers": randomizer.space.answers,
            "inputs": [
                {
                    "true": true,
                    "total": str(randomizer.total(true)),
                    "symbols": _selected(randomizer.total(true), partial(randomizer.symbol_at, true=true), 12),
                }
                for true in _some(randomizer.space.size, 13)
            ],
        }
        for randomizer in RANDOMIZERS
    ]


def _joint() -> list[dict[str, Any]]:
    """How the next report of a joint group is drawn, by what is remembered of those before it."""
    return [
        {
            "answers": group.tracks[0].randomizer.space.answers,
            "group": plan_as_fields(ReleasePlan((group,)))[0],
            "odds of one report by itself": [_odds(track.randomizer.odds) for track in group.tracks],
            "reports": [*_joint_reports(group)],
        }
        for group in JOINT_GROUPS
    ]


def _joint_reports(group: Group) -> Iterator[dict[str, Any]]:
    joint = group.joint
    assert joint is not None
    for place, used in product(range(len(group.tracks)), product(*(range(slots + 1) for slots in joint.slots))):
        randomizer = agreeing(group.tracks[place].randomizer)
        most = min(joint.threshold, sum(weight * slots for weight, slots in zip(joint.weights, used, strict=True)))
        for score, true in product(sorted({0, max(most - 1, 0), most}), (0, randomizer.space.size - 1)):
            telling = randomizer.tells(true) and used[place] < joint.slots[place]
            odds = group.kernel.conditional_odds(place, used, score) if telling else Odds(1, 1)
            total = randomizer.favoured_total(true, odds)
            yield {
                "track": place,
                "used": list(used),
                "score": score,
                "true": true,
                "odds": _odds(odds),
                "total": str(total),
                "symbols": _selected(total, partial(randomizer.favoured_symbol_at, true=true, odds=odds), 6),
            }


def _selected(total: int, symbol_at: Callable[[int], int], most: int) -> list[list[str]]:
    """Some drawn integers, spread evenly, each with its symbol; as text, as they may have more than 64 bits."""
    return [[str(drawn), str(symbol_at(drawn))] for drawn in _some(total, most)]


def _some(count: int, most: int) -> list[int]:
    """Numbers below a count, at most so many and spread evenly; the first and the last are among them."""
    return [*range(count)] if count <= most else sorted({i * (count - 1) // (most - 1) for i in range(most)})


def _odds(odds: Odds) -> list[str]:
    return [str(odds.favoured), str(odds.other)]


def _signed() -> dict[str, Any]:
    return {
        "authority": PINNED[0].hex(),
        "surveys": [
            {"id": each.id.hex(), "epsilon_micro": each.epsilon_micro, "signed": each.signed_by(AUTHORITY).hex()}
            for each in (survey(), survey(mixed(3, 8)), survey(joint_plan(3, 8)))
        ],
        "early end": {"survey": END.survey.hex(), "last": END.last, "signed": END.signed_by(AUTHORITY).hex()},
        "sealing key": {"id": SEALING_KEY.id.hex(), "signed": SEALING_KEY.signed_by(AUTHORITY).hex()},
    }


def _upload() -> dict[str, Any]:
    """An upload of group 0, which reports the nodes that it drew: a closing may have no report, or not be answered."""
    each = survey(mixed(3, 8))
    span = Node(2, 6)
    closings = [
        Closing(3, bytes(range(16)), Standing.NEW, StratumNumber(0)),
        Closing(4, bytes(range(16, 32)), Standing.KNOWN, StratumNumber(1000)),
        Closing(6, bytes(range(32, 48)), Standing.MISSED, StratumNumber(7)),
    ]
    reports = [Report(TrackNumber(0), NodeNumber(4), 3), Report(TrackNumber(0), NodeNumber(6), 0)]
    return {
        "survey": each.signed_by(AUTHORITY).hex(),
        "group": 0,
        "span": [span.start, span.end],
        "closings": [
            {"period": c.period, "id": c.id.hex(), "standing": c.standing, "stratum": c.stratum} for c in closings
        ],
        "reports": [{"track": r.track, "node": r.node, "symbol": r.symbol} for r in reports],
        "plaintext": encode_upload(each.plan, 0, span, closings, reports).hex(),
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
