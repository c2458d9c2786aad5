"""The log of a server: a JSON object a line on standard error, whichever library speaks."""

import logging
import sys
from time import monotonic

import structlog

from .errors import AggregatorError
from .store import STORE_FAILURES


def log_in_json() -> None:
    """From now on whatever this process logs is JSON; of the server's own also what is no warning."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(sort_keys=True),
            ],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("changeling").setLevel(logging.INFO)


def log_failure(log: logging.Logger, sentence: str, error: Exception) -> None:
    """Logs what failed and will be tried again: an error of ours, or of a store that is away, in one line; a defect
    with its traceback.
    """
    cause = _cause_of(error)
    if cause is None:
        log.error(sentence, exc_info=error)
    else:
        log.warning("%s: %s", sentence, cause)


def _cause_of(error: Exception) -> str | None:
    """The first line of what an operator can mend; None for a defect."""
    if not isinstance(error, (AggregatorError, *STORE_FAILURES)):
        return None
    cause = str(getattr(error, "orig", None) or error).strip()
    return cause.partition("\n")[0] or type(error).__name__


OUTAGE_SECONDS = 10.0
"""The least time from a line about an outage to the next: what comes and goes fills no log."""


class LoggedOutage:
    """Logs what fails again and again: a line when it begins, one when it is over, and meanwhile other causes, one in
    OUTAGE_SECONDS.

    failing, over: the sentences. lasts: from the line that it begins to the one that it is over. One thread at a time.
    """

    def __init__(self, log: logging.Logger, failing: str, over: str) -> None:
        self._log, self._failing, self._over = log, failing, over
        self._cause = ""
        self._told = 0.0
        self.lasts = False

    def failed(self, error: Exception) -> None:
        """Say so, unless it failed like this before."""
        cause = _cause_of(error) or repr(error)
        if not self.lasts or (cause != self._cause and self._has_been_long()):
            log_failure(self._log, self._failing, error)
            self._cause, self._told, self.lasts = cause, monotonic(), True

    def succeeded(self) -> None:
        """Say so, if it failed before."""
        if self.lasts and self._has_been_long():
            self._log.warning(self._over)
            self.lasts = False

    def _has_been_long(self) -> bool:
        return monotonic() >= self._told + OUTAGE_SECONDS
