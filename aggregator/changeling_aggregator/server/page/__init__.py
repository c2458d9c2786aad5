"""The page at `/`: what people come to look at. It shows what the API answers, to whom the API answers it.

Its routes are not in the OpenAPI document, which is a promise to programs: they are between the page and the server of
one version, and change with both. What they show, programs have from the API.
"""

from starlette.routing import Route

from .files import show_file, show_index
from .in_words import show_in_words
from .signing_in import sign_in, sign_out, who_is_signed_in

ROUTES = [
    Route("/", show_index, methods=["GET"]),
    Route("/page/session", who_is_signed_in, methods=["GET"]),
    Route("/page/session", sign_in, methods=["POST"]),
    Route("/page/session", sign_out, methods=["DELETE"]),
    Route("/page/surveys/{survey}", show_in_words, methods=["GET"]),
    Route("/page/{file}", show_file, methods=["GET"]),
]

__all__ = ["ROUTES"]
