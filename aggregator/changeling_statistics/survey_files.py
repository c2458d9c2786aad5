"""Surveys in files: unsigned ones as JSON, which people can read, signed ones as the bytes that a server publishes."""

import json
from pathlib import Path

from changeling_protocol import MalformedBytes, Survey, UnderstatedEpsilon, group_cost


def write_survey(path: Path, survey: Survey) -> None:
    """Writes an unsigned survey as JSON: all that will be signed, and what each group costs, for people to read.

    path: the file. Raises OSError if it cannot be written.
    """
    circumstances = survey.calendar, survey.constraint, survey.closed
    groups = [f"{group_cost(group, *circumstances):.6f}" for group in survey.plan.groups]
    content = {
        "survey": {**survey.as_fields(), "follows": survey.follows.hex()},
        "cost": {"epsilon": str(survey.epsilon), "groups": groups},
    }
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_survey(path: Path) -> Survey:
    """The survey in a file, signed or not. Its cost is computed again; a signature is not checked.

    path: what `write_survey` wrote, or a signed survey.
    Raises MalformedBytes or UnderstatedEpsilon, which name the file, or OSError.
    """
    content = path.read_bytes()
    try:
        return _survey_in_json(content) if content.lstrip().startswith(b"{") else Survey.unverified(content)
    except MalformedBytes as error:
        raise MalformedBytes(f"{path} holds no survey: {error}; make one with `changeling survey new`") from error
    except UnderstatedEpsilon as error:
        raise UnderstatedEpsilon(f"{path}: {error}") from error


def _survey_in_json(content: bytes) -> Survey:
    try:
        fields = dict(json.loads(content)["survey"])
        fields["follows"] = bytes.fromhex(fields["follows"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedBytes("not the JSON of a survey") from error
    return Survey.from_fields(fields)
