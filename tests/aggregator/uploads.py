"""Upload requests whose envelopes say whose survey they are of and nothing else that anybody could open."""

from changeling_aggregator.ingest import LogRequest, by_survey
from changeling_protocol import HEAD_BYTES, SEAL_BYTES, VERSION, SurveyId
from changeling_protocol.wire import decode_upload_request, encode_upload_request

SURVEYS = SurveyId(b"survey of 16 by."), SurveyId(b"another survey..")


def upload(*contents: bytes) -> bytes:
    """A request with an envelope for each of these contents, of one survey after the other."""
    heads = [bytes([VERSION]) + survey + bytes(HEAD_BYTES - 17) for survey in SURVEYS]
    envelopes = [heads[at % 2] + bytes(SEAL_BYTES) + content for at, content in enumerate(contents)]
    return encode_upload_request(envelopes)


def split(*bodies: bytes) -> list[LogRequest]:
    """Such requests as a writer is given them."""
    return [each for body in bodies for each in by_survey(body, SURVEYS)]


def content_of(request: bytes) -> list[bytes]:
    """What is in the envelopes of a request."""
    return [each[HEAD_BYTES + SEAL_BYTES :] for each in decode_upload_request(request)]
