"""A store in a temporary folder, and servers: the fixtures of the server's own tests."""

from tests.aggregator.conftest import store

__all__ = ["store"]
