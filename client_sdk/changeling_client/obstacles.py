"""What can stand between a report and the server, by the name under which it is counted, and what it means.

**Whatever stands in the way, what waits is kept.** A device cannot tell a wrong request from a wrong server: a proxy in
between, a server that is being replaced, a path that moved for a day and a token that ran out all answer with a 4xx.
So no status of an answer, and no missing answer, ever drops a report. It is sent again, and goes when its grace is
over, which is counted. Only for one thing is anything dropped at a server's word: an acknowledgement that says the
survey is closed, when its calendar is over by the device's own time as well.
"""

from enum import StrEnum


class Obstacle(StrEnum):
    """Why an exchange did not do what it was for. In each case, what waits is kept."""

    MALFORMED = "malformed"
    """400, 422: it does not take our request for one. Another version may stand there tomorrow."""
    NOT_ADMITTED = "not-admitted"
    """401, 403, 407, 451: somebody does not let us in. Admission can be given again."""
    NOT_HERE = "not-here"
    """404, 405, 410: nothing answers at this path, or not yet. A survey may be published after its app."""
    TIMED_OUT = "timed-out"
    """408, 504: our request took the server, or what stands before it, too long."""
    TOO_LARGE = "body-too-large"
    """413: less is taken at once than the protocol allows. Fewer envelopes in a request may pass."""
    UNSUPPORTED = "unsupported"
    """406, 415: it does not take this media type. Another version may stand there tomorrow."""
    BUSY = "busy"
    """429, 503: it asks for patience."""
    BROKEN = "broken"
    """Any other 5xx: the server's own failure."""
    UNEXPECTED = "unexpected"
    """Any other status, redirects among them, which are not followed."""
    UNREADABLE = "unreadable"
    """200, and then something that is too long, compressed, or no answer to what was asked."""
    UNREACHABLE = "unreachable"
    """No answer at all: no name, no connection, no trusted certificate, or it broke off."""
    TOO_SLOW = "too-slow"
    """No whole answer by the deadline."""
    LEFT_ALONE = "left-alone"
    """Not asked, since the server wants to be left alone for a while."""
    HANGING = "hanging"
    """Not asked, since an earlier exchange cannot be ended and is not through."""
    ENDED = "ended"
    """We ended it, or never began: the client closes."""

    @classmethod
    def of(cls, status: int) -> "Obstacle":
        """What a status other than 200 stands for."""
        return _OF_STATUS.get(status, cls.BROKEN if 500 <= status < 600 else cls.UNEXPECTED)

    @property
    def is_failure(self) -> bool:
        """Whether something was tried and failed, so that the next attempt had better wait."""
        return self not in (Obstacle.LEFT_ALONE, Obstacle.HANGING, Obstacle.ENDED)


_OF_STATUS = {
    400: Obstacle.MALFORMED,
    401: Obstacle.NOT_ADMITTED,
    403: Obstacle.NOT_ADMITTED,
    404: Obstacle.NOT_HERE,
    405: Obstacle.NOT_HERE,
    406: Obstacle.UNSUPPORTED,
    407: Obstacle.NOT_ADMITTED,
    408: Obstacle.TIMED_OUT,
    410: Obstacle.NOT_HERE,
    413: Obstacle.TOO_LARGE,
    415: Obstacle.UNSUPPORTED,
    422: Obstacle.MALFORMED,
    429: Obstacle.BUSY,
    451: Obstacle.NOT_ADMITTED,
    503: Obstacle.BUSY,
    504: Obstacle.TIMED_OUT,
}
