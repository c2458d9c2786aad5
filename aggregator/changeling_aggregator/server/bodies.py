"""Bodies on their way: how slowly they may come, and how much of them is kept in memory."""

import asyncio

BODY_SECONDS = 60.0
"""A body that takes longer is refused: what has arrived of it is in memory meanwhile."""
SLOW_SECONDS, LEAST_BYTES_A_SECOND = 10.0, 1024
"""From then on so much of it must have come on average."""
MOST_BODIES_BYTES = 128 * 2**20
"""The most bytes in memory of all bodies that have not arrived whole, however many send slowly."""


class Body:
    """What has arrived of a body. deadline: by when the rest has to come. begun: seconds of the loop's clock."""

    __slots__ = ("begun", "deadline", "size")

    def __init__(self, deadline: asyncio.Timeout, begun: float) -> None:
        self.deadline, self.begun, self.size = deadline, begun, 0


class Bodies:
    """The bodies that have not arrived whole. Where they leave no room, the one that has taken the most for the longest
    goes, and not the one that comes: so those who send slowly keep nobody else from sending.
    """

    def __init__(self) -> None:
        self.size = 0
        """Bytes."""
        self._arriving: set[Body] = set()

    def begin(self, deadline: asyncio.Timeout) -> Body:
        """One more."""
        body = Body(deadline, asyncio.get_running_loop().time())
        self._arriving.add(body)
        return body

    def add(self, body: Body, size: int) -> None:
        """More of it has come. Sets the time by which still more has to."""
        if body not in self._arriving:  # it is being ended
            return
        body.size += size
        self.size += size
        body.deadline.reschedule(body.begun + min(SLOW_SECONDS + body.size / LEAST_BYTES_A_SECOND, BODY_SECONDS))
        if self.size > MOST_BODIES_BYTES:
            now = asyncio.get_running_loop().time()
            longest = max(self._arriving, key=lambda each: each.size * (now - each.begun))
            longest.deadline.reschedule(now)
            self.end(longest)

    def end(self, body: Body) -> None:
        """It is whole, or will not be."""
        if body in self._arriving:
            self._arriving.remove(body)
            self.size -= body.size
