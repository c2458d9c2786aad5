"""What can go wrong for a reader.

    ReaderError            the server turned the question down, or what answered is no server of ours

Where the server cannot be reached, httpx says so with errors of its own.
"""

from changeling_protocol import ChangelingError


class ReaderError(ChangelingError):
    """A server's answer that holds no results.

    status: of HTTP. code: why, as in `changeling_protocol.wire.ErrorCode`; None where what answered is no server of
    ours.
    """

    def __init__(self, status: int, code: str | None, detail: str) -> None:
        super().__init__(f"the server answered {status}: {detail}")
        self.status, self.code = status, code
