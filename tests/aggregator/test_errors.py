"""Errors: every one is drawn where it is defined, and every answer that is one has the same form."""

from types import ModuleType

import pytest
from changeling_aggregator import errors
from changeling_protocol import errors as protocol_errors
from changeling_protocol.wire import ErrorAnswer, ErrorCode

from .serving import ADMIN, ServerProcess


@pytest.mark.parametrize(
    ("package", "root"), [(errors, errors.AggregatorError), (protocol_errors, protocol_errors.ChangelingError)]
)
def test_the_tree_of_errors_is_the_one_that_is_drawn(package: ModuleType, root: type) -> None:
    """errors.py opens with every error it defines, all have one root, and each says what it is."""
    defined = [
        each for each in vars(package).values() if isinstance(each, type) and each.__module__ == package.__name__
    ]
    for error in defined:
        assert issubclass(error, root)
        assert error.__name__ in (package.__doc__ or "")
        assert error.__doc__


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/nothing", ErrorCode.NOT_FOUND),
        *(("GET", f"/v1/surveys/{path}", ErrorCode.NOT_FOUND) for path in ("zz", "00" * 15, "00" * 16)),
        *(("GET", f"/v1/surveys/{'00' * 16}/{what}", ErrorCode.NOT_FOUND) for what in ("histogram", "nothing")),
        ("DELETE", "/v1/keys", ErrorCode.METHOD_NOT_ALLOWED),
        ("GET", "/v1/uploads", ErrorCode.METHOD_NOT_ALLOWED),
        ("POST", "/v1/uploads", ErrorCode.MALFORMED),
        ("PUT", "/v1/keys", ErrorCode.MALFORMED),
    ],
)
def test_an_error_answer_is_a_code_and_a_sentence(
    server: ServerProcess, method: str, path: str, code: ErrorCode
) -> None:
    """Whether an endpoint turns the request down or no endpoint is there: JSON, under the code's status."""
    response = server.http.request(method, path, headers=ADMIN)
    answer = ErrorAnswer.decode(response.content)
    assert (response.status_code, answer.code) == (code.status, code)
    assert answer.detail
    assert response.headers["content-type"] == "application/problem+json"
