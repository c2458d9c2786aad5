"""The log of a server: a JSON object a line on standard error, whichever library speaks."""

import logging
import sys

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
    if isinstance(error, (AggregatorError, *STORE_FAILURES)):
        cause = str(getattr(error, "orig", None) or error).strip()
        log.warning("%s: %s", sentence, cause.partition("\n")[0] or type(error).__name__)
    else:
        log.exception(sentence)
