"""A server that speaks as S3 does, on loopback, with a bucket of its own for each test."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from logging import WARNING, getLogger

import boto3
from moto.server import ThreadedMotoServer

_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
}
_numbers = count()


@contextmanager
def object_store() -> Iterator[str]:
    """Runs it while the context lasts, named in the environment; gives its endpoint."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    getLogger("werkzeug").setLevel(WARNING)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    before = {name: os.environ.get(name) for name in (*_ENVIRONMENT, "AWS_ENDPOINT_URL")}
    os.environ.update(_ENVIRONMENT, AWS_ENDPOINT_URL=endpoint)
    try:
        yield endpoint
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        server.stop()


def new_bucket(endpoint: str) -> str:
    """The URL of a place in a new bucket."""
    name = f"segments-{next(_numbers)}"
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=name)
    return f"s3://{name}/log"
