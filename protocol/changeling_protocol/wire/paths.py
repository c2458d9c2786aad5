"""Where requests go: the paths behind a server's base URL."""

UPLOADS = "/v1/uploads"
"""POST an upload request; the answer is an acknowledgement."""
SURVEYS = "/v1/surveys"
"""GET the list of published surveys."""
KEYS = "/v1/keys"
"""GET the list of sealing keys, PUT a signed one."""
FOLD = "/v1/fold"
"""POST to count now what has been uploaded."""
CLOCK = "/v1/clock"
"""PUT the time: a demo's clock is moved to it, a real one confirmed."""
ALIVE, READY = "/healthz", "/readyz"
"""GET whether the server answers, and whether it can do its work."""
DOCUMENT = "/openapi.json"
"""GET the OpenAPI document of a server."""

END = "/end"
"""Behind a survey's path: PUT its signed early end."""
HISTOGRAM, SERIES, WINDOWS, CHANGE, STATUS = "/histogram", "/series", "/windows", "/change", "/status"
"""Behind a survey's path: GET its estimates, and how its reports are doing."""


def survey_path(survey: str) -> str:
    """The path of one survey: GET its signed bytes, PUT them to publish it.

    survey: its id, in 32 hexadecimal digits.
    """
    return f"{SURVEYS}/{survey}"
