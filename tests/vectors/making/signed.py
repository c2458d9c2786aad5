"""Signed objects: surveys, sealing keys and early ends that are to be taken, and many that must be refused."""

import msgpack
import pytest
from changeling_protocol import (
    BadSignature,
    EarlyEnd,
    MalformedBytes,
    ProtocolError,
    SealingKey,
    Survey,
    UnderstatedEpsilon,
    decode,
    signed,
)

from ...protocol.examples import AUTHORITY, PINNED
from .examples import FREEZING, NEXT_AUTHORITY, NUMBERS, SEALING_KEY, SURVEYS
from .notation import tagged

BOTH = (*PINNED, NEXT_AUTHORITY.public_key().public_bytes_raw())
END = EarlyEnd(SURVEYS["hierarchy"].id, 3)
_READ = {
    "survey": Survey.from_signed,
    "sealing-key": SealingKey.from_signed,
    "early-end": EarlyEnd.from_signed,
}
_REASONS = {BadSignature: "bad-signature", UnderstatedEpsilon: "understated-epsilon", MalformedBytes: "malformed"}
_KRR = {"kind": "k-rr", "space": "mutations", "odds": [3, 1]}


def cases():
    """What is to be taken, then what is to be refused, by object."""
    for name, survey in SURVEYS.items():
        yield _survey(name, survey, survey.signed_by(AUTHORITY), PINNED)
    survey = SURVEYS["hierarchy"]
    yield _survey("by the next key", survey, survey.signed_by(NEXT_AUTHORITY), BOTH)
    yield {
        "kind": "sealing-key",
        **_signed(SEALING_KEY.signed_by(AUTHORITY), PINNED),
        "id": SEALING_KEY.id.hex(),
        "public": SEALING_KEY.public.hex(),
        "begins": SEALING_KEY.begins,
        "expires": SEALING_KEY.expires,
    }
    yield {
        "kind": "early-end",
        **_signed(END.signed_by(AUTHORITY), PINNED),
        "survey": END.survey.hex(),
        "last": END.last,
    }
    for kind, why, encoded, authority in _wrong_signatures():
        yield _refused(kind, why, encoded, authority)
    for kind, why, fields in (*_wrong_surveys(), *_wrong_others()):
        yield _refused(kind, why, signed(kind, fields, AUTHORITY), PINNED)


def _signed(encoded, authority):
    return {"authority": [key.hex() for key in authority], "signed": encoded.hex()}


def _survey(name, survey, encoded, authority):
    payload = tagged(decode(survey.payload))
    return {"kind": "survey", "name": name, **_signed(encoded, authority), "id": survey.id.hex(), "payload": payload}


def _refused(kind, why, encoded, authority):
    with pytest.raises(ProtocolError) as error:
        _READ[kind](encoded, authority)
    reason = _REASONS[error.type]
    return {"kind": "refused", "object": kind, "why": why, **_signed(encoded, authority), "reason": reason}


def _wrong_signatures():
    """Kinds of objects, what is wrong with each, its bytes, and the keys that are pinned."""
    survey = SURVEYS["hierarchy"]
    encoded = survey.signed_by(AUTHORITY)
    yield "survey", "signed by nobody we know", encoded, BOTH[1:]
    yield "survey", "an altered signature", encoded[:-1] + bytes([encoded[-1] ^ 1]), PINNED
    at = encoded.index(b"tea")
    yield "survey", "an altered payload", encoded[:at] + b"Tea" + encoded[at + 3 :], PINNED
    yield "sealing-key", "signed by nobody we know", SEALING_KEY.signed_by(NEXT_AUTHORITY), PINNED
    yield "early-end", "signed by nobody we know", END.signed_by(NEXT_AUTHORITY), PINNED
    identity = b"\1" + bytes(31)
    forged = msgpack.packb({"payload": survey.payload, "signature": identity + bytes(32)})
    yield "survey", "forged under a key of low order", forged, (identity,)
    yield "survey", "something after it", encoded + b"\0", PINNED
    yield "survey", "cut short", encoded[:-1], PINNED
    yield "survey", "a signed sealing key", SEALING_KEY.signed_by(AUTHORITY), PINNED
    yield "sealing-key", "a signed survey", encoded, PINNED
    yield "early-end", "a signed sealing key", SEALING_KEY.signed_by(AUTHORITY), PINNED
    parts, text = decode(encoded), decode(survey.payload)
    yield "survey", "a third part beside payload and signature", msgpack.packb({**parts, "z": 1}), PINNED
    yield "survey", "its parts out of order", msgpack.packb(dict(reversed(parts.items()))), PINNED
    for why, payload in (
        ("another version", {**text, "version": text["version"] + 1}),
        ("a version that is a boolean", {**text, "version": True}),
        ("no version", {key: value for key, value in text.items() if key != "version"}),
        ("a payload out of order", dict(reversed(text.items()))),
        ("a payload that is no map", []),
        ("a float", {**text, "minimum": 1.0}),
    ):
        packed = msgpack.packb(payload)
        yield "survey", why, msgpack.packb({"payload": packed, "signature": AUTHORITY.sign(packed)}), PINNED


def _wrong_surveys():
    """Kinds of objects, what is wrong with each, and its fields."""
    plain, joint, number, freezing = (
        each.as_fields() for each in (SURVEYS["hierarchy"], SURVEYS["joint"], NUMBERS, FREEZING)
    )

    def altered(why, of, **other):
        return "survey", why, {**of, **other}

    def other_question(of, place, **other):
        return [{**each, **other} if at == place else each for at, each in enumerate(of["questions"])]

    yield altered("a millionth less than it costs", plain, epsilon_micro=plain["epsilon_micro"] - 1)
    yield altered("a joint group that states less", joint, epsilon_micro=joint["epsilon_micro"] - 1)
    for name in ("relay", "plan", "closed"):
        yield "survey", f"no {name}", {key: plain[key] for key in plain if key != name}
    for why, other in _OTHER_FIELDS.items():
        yield altered(why, plain, **other)
    for why, other in _OTHER_QUESTIONS.items():
        yield altered(why, plain, questions=other_question(plain, 0, **other))
    for why, levels in _OTHER_LEVELS.items():
        yield altered(why, number, questions=other_question(number, 1, levels=levels)[:2], epsilon_micro=10**9)
    for why, other in _OTHER_FREEZING.items():
        yield altered(why, freezing, questions=other_question(freezing, 1, **other), epsilon_micro=10**9)
    yield altered("a freezing question alone", freezing, questions=[freezing["questions"][1]])
    yield altered("two questions of one name", plain, questions=plain["questions"] * 2)
    yield altered("no questions", plain, questions=[])
    randomizers = {why: {"randomizer": each} for why, each in _OTHER_RANDOMIZERS.items()}
    for why, track in {**randomizers, **_OTHER_TRACKS}.items():
        yield altered(why, plain, plan=[{"share": 1, "tracks": [_track(**track)]}], epsilon_micro=10**9)
    (group,) = joint["plan"]
    for why, parameters in _OTHER_JOINTS.items():
        yield altered(why, joint, plan=[{**group, "joint": {**group["joint"], **parameters}}], epsilon_micro=10**9)
    with_odds = [{**track, "randomizer": {**track["randomizer"], "odds": [2, 1]}} for track in group["tracks"]]
    yield altered("a joint group whose tracks have odds", joint, plan=[{**group, "tracks": with_odds}])
    unary = [{**track, "randomizer": {"kind": "unary", "space": "states"}} for track in group["tracks"]]
    yield altered("a joint group of what has no joint form", joint, plan=[{**group, "tracks": unary}])
    pairs = [{**group["tracks"][0], "randomizer": {"kind": "k-rr", "space": "mutations"}}, group["tracks"][1]]
    yield altered("a joint group that tells no change", joint, plan=[{**group, "tracks": pairs}])


def _track(**other):
    return {"width": 1, "first": 0, "last": 8, "reported": None, "randomizer": _KRR, **other}


def _long(track):
    """Of a survey with this track alone, over as many periods as there may be."""
    return {"calendar": [0, 60, 2**20], "plan": [{"share": 1, "tracks": [track]}], "epsilon_micro": 10**9}


def _subset(space="mutations", pluses=0, spoken=(1, 2)):
    return {"kind": "signed-subset", "space": space, "odds": [3, 1], "pluses": pluses, "spoken": list(spoken)}


_OTHER_FIELDS = {
    "a field that no survey has": {"colour": "red"},
    "closed is no boolean": {"closed": 0},
    "a boolean in place of a number": {"skew": True},
    "a negative skew": {"skew": -1},
    "no spread": {"spread": 0},
    "a grace that is not longer than skew and spread": {"grace": 15},
    "no minimum": {"minimum": 0},
    "a calendar of two numbers": {"calendar": [1_800_000_000, 60]},
    "a calendar that begins before 1970": {"calendar": [-1, 60, 8]},
    "a period of no length": {"calendar": [1_800_000_000, 0, 8]},
    "a calendar without periods": {"calendar": [1_800_000_000, 60, 0]},
    "too many periods": {"calendar": [1_800_000_000, 60, 2**20 + 1]},
    "a calendar beyond the year 9999": {"calendar": [1_800_000_000, 2**40, 8]},
    "a grace beyond the year 9999": {"grace": 2**38},
    "tracks that reach beyond the calendar": {"calendar": [1_800_000_000, 60, 7]},
    "a negative epsilon": {"epsilon_micro": -1},
    "too large an epsilon": {"epsilon_micro": 10**15 + 1},
    "the name that the offset has": {"breakdowns": [["offset", "a"]]},
    "a breakdown without a name": {"breakdowns": [["", "a"]]},
    "a breakdown without values": {"breakdowns": [["platform"]]},
    "a value twice": {"breakdowns": [["platform", "a", "a"]]},
    "two breakdowns of one name": {"breakdowns": [["platform", "a"], ["platform", "b"]]},
    "too many strata": {"breakdowns": [[name, *map(str, range(33))] for name in ("a", "b")]},
    "changes of a stratum where there is none": {"stratum_changes": 1},
    "too many changes of a stratum": {"breakdowns": [["platform", "a", "b"]], "stratum_changes": 101},
    "a relay that is no text": {"relay": b""},
    "following what is no id": {"follows": bytes(15)},
    "no groups": {"plan": []},
    "a group without tracks": {"plan": [{"share": 1, "tracks": []}]},
    "a group without a share": {"plan": [{"share": 0, "tracks": [_track()]}], "epsilon_micro": 10**9},
    "too many nodes": _long(_track(last=2**20)),
    "too many drawn nodes": _long(_track(width=8, last=2**18, reported=2**14 + 1)),
}
_OTHER_QUESTIONS = {
    "no question": {"text": ""},
    "an answer that is no text": {"answers": ["tea", "coffee", 3]},
    "no answers": {"answers": []},
    "an answer twice": {"answers": ["tea", "coffee", "tea"]},
    "an empty answer": {"answers": ["tea", "coffee", ""]},
    "an unknown constraint": {"constraint": {"kind": "never"}},
    "a constraint with one part too many": {"constraint": {"kind": "at-most", "k": 3, "seconds": 4}},
    "no mutation allowed": {"constraint": {"kind": "at-most", "k": 0}},
    "too many mutations allowed": {"constraint": {"kind": "at-most", "k": 2**20 + 1}},
    "no time to change": {"constraint": {"kind": "time-bounded", "seconds": 0}},
    "a hybrid of one class": {"constraint": {"kind": "hybrid", "classes": [{"kind": "at-most", "k": 1}]}},
    "expected changes above one": {"expected": {"first": 10**6 + 1, "later": 0}},
    "expected changes of three kinds": {"expected": {"first": 0, "later": 0, "last": 0}},
    "a hybrid of hybrids": {
        "constraint": {"kind": "hybrid", "classes": [{"kind": "hybrid", "classes": []}, {"kind": "at-most", "k": 1}]}
    },
    "a question without a name": {"name": ""},
    "a part that no question has": {"colour": "red"},
}
_OTHER_LEVELS = {
    "one level": ["0"],
    "levels that do not rise": ["0", "2", "1"],
    "a level twice": ["0", "1", "1"],
    "a level with a zero that means nothing": ["0", "1.0", "2"],
    "a level with an exponent": ["0", "1E1", "20"],
    "a level below nothing, of nothing": ["-0", "1", "2"],
    "a level that is no number": ["0", "NaN", "2"],
    "a level that is not text": ["0", 1, 2],
}
_OTHER_FREEZING = {
    "a freezing question about none": {"freezing_of": ""},
    "a freezing question about one that is not asked": {"freezing_of": "food"},
    "a freezing question about itself": {"freezing_of": "drink-frozen"},
    "a freezing question with three answers": {"answers": ["no", "yes", "perhaps"]},
    "a freezing question with three changes": {"constraint": {"kind": "at-most", "k": 3}},
}
_OTHER_RANDOMIZERS = {
    "an unknown randomizer": {"kind": "laplace", "space": "mutations", "odds": [3, 1]},
    "an unknown space": {"kind": "k-rr", "space": "everything", "odds": [3, 1]},
    "odds the wrong way round": {"kind": "k-rr", "space": "mutations", "odds": [1, 3]},
    "odds to nothing": {"kind": "k-rr", "space": "mutations", "odds": [3, 0]},
    "odds of three": {"kind": "k-rr", "space": "mutations", "odds": [3, 2, 1]},
    "odds with a boolean": {"kind": "k-rr", "space": "mutations", "odds": [3, True]},
    "k-RR with a parameter that it has not": {"kind": "k-rr", "space": "mutations", "odds": [3, 1], "chosen": 1},
    "k-RR of changes over states": {"kind": "k-rr-change", "space": "states", "odds": [3, 1]},
    "k-RR of changes over pairs": {"kind": "k-rr-change", "space": "mutation-pairs", "odds": [3, 1]},
    "k-RR of changes at even odds": {"kind": "k-rr-change", "space": "mutations", "odds": [3, 3]},
    "states without NULL in an open cohort": {"kind": "k-rr", "space": "answers", "odds": [3, 1]},
    "moves in an open cohort": {"kind": "k-rr", "space": "moves", "odds": [3, 1]},
    "signed subsets of states": _subset("states"),
    "a fraction not in lowest terms": _subset(spoken=(2, 4)),
    "spoken above one": _subset(spoken=(3, 2)),
    "never spoken": _subset(spoken=(0, 1)),
    "too many pluses": _subset(pluses=2),
    "subsets of mutations": {"kind": "subset", "space": "mutations", "odds": [3, 1], "chosen": 1},
    "sets of no states": {"kind": "subset", "space": "states", "odds": [3, 1], "chosen": 0},
    "sets of all states": {"kind": "subset", "space": "states", "odds": [3, 1], "chosen": 4},
    "unary encoding at even odds": {"kind": "unary", "space": "states", "odds": [1, 1]},
    "unary encoding of mutations": {"kind": "unary", "space": "mutations", "odds": [3, 1]},
    "weights of an infinite loss": {"kind": "custom", "space": "states", "weights": [[1, 0, 1, 1], [1, 1, 1, 1]]},
    "weights of another shape": {"kind": "custom", "space": "states", "weights": [[1, 1, 1], [1, 1, 1]]},
    "a negative weight": {"kind": "custom", "space": "states", "weights": [[1, 1, 1, -1], [1, 1, 1, 2]]},
    "a symbol that nobody sends": {"kind": "custom", "space": "states", "weights": [[0] * 4, [1] * 4]},
    "no weights": {"kind": "custom", "space": "states", "weights": []},
}
_OTHER_TRACKS = {
    "nodes of no width": {"width": 0},
    "a track that ends before it begins": {"first": 5, "last": 5},
    "no node fits": {"width": 9},
    "more nodes than there are": {"reported": 9},
    "no nodes": {"reported": 0},
    "reported is text": {"reported": "all"},
    "a width that is text": {"width": "1"},
    "a part that no track has": {"colour": 1},
}
_OTHER_JOINTS = {
    "fewer slots than reports that tell": {"slots": [2, 2]},
    "slots for another number of tracks": {"slots": [2], "weights": [2]},
    "even joint odds": {"odds": [5, 5]},
    "a threshold beyond all weights": {"threshold": 8},
    "no threshold": {"threshold": 0},
    "a weight of nothing": {"weights": [2, 0]},
    "a weight that never decides": {"weights": [4, 1], "threshold": 4, "slots": [2, 3]},
    "weights of more than 256": {"weights": [200, 1]},
    "a joint part too many": {"colour": 1},
    "a joint boolean": {"threshold": True},
}


def _wrong_others():
    key = {"public": SEALING_KEY.public, "begins": 5, "expires": 6}
    for why, other in (
        ("a public key that is too short", {"public": bytes(31)}),
        ("a public key of low order", {"public": bytes(32)}),
        ("another public key of low order", {"public": b"\1" + bytes(31)}),
        ("a key that expires before it begins", {"begins": 6}),
        ("a key from before 1970", {"begins": -1}),
        ("a key that never expires", {"expires": 2**63}),
        ("a boolean in place of a time", {"begins": False}),
        ("a part that no key has", {"colour": 1}),
    ):
        yield "sealing-key", why, {**key, **other}
    end = {"survey": END.survey, "last": 3}
    for why, other in (
        ("a survey's id that is too short", {"survey": bytes(15)}),
        ("an end before the first period", {"last": 0}),
        ("an end after any calendar", {"last": 2**20 + 1}),
        ("a boolean in place of a period", {"last": True}),
        ("a part that no end has", {"colour": 1}),
    ):
        yield "early-end", why, {**end, **other}
