"""Entity tags: which content an answer has, so that who kept that content is told that it still holds."""

from hashlib import blake2b

from starlette.requests import Request


def tag_of(content: bytes) -> str:
    """The tag of this content, or of what determines it, with its quotation marks as `ETag` has it."""
    return f'"{blake2b(content, digest_size=16).hexdigest()}"'


def is_kept(request: Request, tag: str) -> bool:
    """Whether the sender says, in `If-None-Match`, that it has the content with this tag, so that 304 is enough."""
    asked = request.headers.get("if-none-match", "")
    return asked.strip() == "*" or tag in (each.strip().removeprefix("W/") for each in asked.split(","))
