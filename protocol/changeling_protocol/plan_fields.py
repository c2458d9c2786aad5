"""Release plans in a survey's signed bytes."""

from typing import Any

from .canonical import Fields
from .joint import MOST_STEPS, Joint
from .plan import Group, ReleasePlan, Track
from .randomizers import randomizer_as_fields, randomizer_from_fields

_ANY_ODDS = [2, 1]
"""What stands in for the odds of a joint track, which the bytes leave out, until the group has worked them out."""


def plan_as_fields(plan: ReleasePlan) -> list[Fields]:
    """The plan's groups, each with its share, its tracks, and how its reports hang together if it is joint."""
    return [_group_as_fields(group) for group in plan.groups]


def plan_from_fields(groups: list[Any], answers: int) -> ReleasePlan:
    """The plan that `plan_as_fields` wrote, for so many answers. Raises ValueError for anything else.

    What joint groups take is looked at before any of them is worked out.
    """
    joint = (group["joint"] for group in groups if isinstance(group, dict) and isinstance(group.get("joint"), dict))
    steps = sum(Joint.from_fields(fields).steps for fields in joint)
    if steps > MOST_STEPS:
        raise ValueError(f"the joint groups of a plan take at most {MOST_STEPS} steps together, got {steps}")
    return ReleasePlan(tuple(_group_from_fields(group, answers) for group in groups))


def _group_as_fields(group: Group) -> Fields:
    tracks = [_track_as_fields(track) for track in group.tracks]
    if group.joint is None:
        return {"share": group.share, "tracks": tracks}
    for track in tracks:
        del track["randomizer"]["odds"]  # they follow from the group
    return {"share": group.share, "tracks": tracks, "joint": group.joint.as_fields()}


def _group_from_fields(fields: Fields, answers: int) -> Group:
    match fields:
        case {"share": int(share), "tracks": [*tracks], "joint": dict(joint), **rest} if not rest:
            return Group.jointly([_joint_track(track, answers) for track in tracks], Joint.from_fields(joint), share)
        case {"share": int(share), "tracks": [*tracks], **rest} if not rest:
            return Group(tuple(_track_from_fields(track, answers) for track in tracks), share)
    raise ValueError("a group is a share and tracks, and what makes it joint")


def _joint_track(fields: Fields, answers: int) -> Track:
    match fields:
        case {"randomizer": dict(randomizer)} if "odds" not in randomizer:
            return _track_from_fields({**fields, "randomizer": {**randomizer, "odds": _ANY_ODDS}}, answers)
    raise ValueError("a track of a joint group has a randomizer without odds of its own")


def _track_as_fields(track: Track) -> Fields:
    return {
        "width": track.width,
        "first": track.first,
        "last": track.last,
        "reported": track.reported,
        "randomizer": randomizer_as_fields(track.randomizer),
    }


def _track_from_fields(fields: Fields, answers: int) -> Track:
    match fields:
        case {
            "width": int(width),
            "first": int(first),
            "last": int(last),
            "reported": None | int() as reported,
            "randomizer": dict(randomizer),
            **rest,
        } if not rest:
            return Track(width, randomizer_from_fields(randomizer, answers), first, last, reported)
    raise ValueError("a track is its width, first, last, reported and randomizer")
