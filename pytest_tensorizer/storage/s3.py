"""A real S3 endpoint: moto's server on 127.0.0.1, or a service that the user names.

moto's in-process mocks would not do: tensorizer reads through curl, which no Python patch reaches.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_tensorizer.storage import credentials


@dataclass(frozen=True)
class S3Service:
    """An endpoint and the credentials that it accepts."""

    endpoint_url: str
    access_key: str
    secret_key: str = field(repr=False)
    region: str = "us-east-1"

    def variables(self) -> dict[str, str]:
        """The environment variables through which the AWS SDKs, and tensorizer, find this service."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_REGION": self.region,
        }

    def access(self) -> AbstractContextManager[None]:
        """While entered, this service is the only one that code in this process can find."""
        return credentials.hidden(self.variables())

    def client(self) -> Any:
        """A boto3 client of this service, made without a look at the user's own configuration."""
        import boto3
        from botocore.config import Config

        with credentials.hidden():
            return boto3.session.Session().client(
                "s3",
                endpoint_url=self.endpoint_url,
                aws_access_key_id=self.access_key,
                aws_secret_access_key=self.secret_key,
                region_name=self.region,
                config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 2}),
            )

    @contextmanager
    def bucket(self) -> Iterator[S3Bucket]:
        """A new, empty bucket, which is deleted with all that is in it on leaving."""
        bucket = S3Bucket(self, f"pytest-tensorizer-{uuid.uuid4().hex[:16]}")
        location = {} if self.region == "us-east-1" else {"LocationConstraint": self.region}
        settings = {"CreateBucketConfiguration": location} if location else {}
        bucket.client.create_bucket(Bucket=bucket.bucket, **settings)
        try:
            yield bucket
        finally:
            bucket.delete()


class S3Bucket:
    """One bucket of a service, as a :class:`~pytest_tensorizer.storage.Storage`."""

    name = "s3"

    def __init__(self, service: S3Service, bucket: str) -> None:
        self.service = service
        self.bucket = bucket
        self.client = service.client()

    def __repr__(self) -> str:
        return f"S3Bucket({self.bucket!r} at {self.service.endpoint_url})"

    def uri(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"

    def access(self) -> AbstractContextManager[None]:
        return self.service.access()

    def put(self, key: str, path: Path) -> None:
        self.client.upload_file(str(path), self.bucket, key)

    def get(self, key: str, path: Path) -> None:
        path.write_bytes(self.read(key))

    def read(self, key: str) -> bytes:
        from botocore.exceptions import ClientError

        try:
            data: bytes = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "NoSuchBucket", "404"):
                raise FileNotFoundError(f"there is no object {self.uri(key)}") from error
            raise
        return data

    def keys(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def delete(self) -> None:
        for key in self.keys():
            self.client.delete_object(Bucket=self.bucket, Key=key)
        self.client.delete_bucket(Bucket=self.bucket)


@contextmanager
def moto_service() -> Iterator[S3Service]:
    """Start moto's server on 127.0.0.1 and a free port; it ends on leaving.

    The server lives in a thread of this process. It accepts one access key and refuses every other with 403, as a
    real service does; moto by itself asks nobody who they are, and its own access control fails on the presigned
    requests that tensorizer makes.
    """
    from moto.server import ThreadedMotoServer

    access_key = f"TEST{uuid.uuid4().hex[:16].upper()}"
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    wsgi: Any = server._server
    wsgi.app = _access_key_required(wsgi.app, access_key)
    wsgi.RequestHandlerClass = type("QuietHandler", (wsgi.RequestHandlerClass,), {"log_request": _silent})
    try:
        host, port = server.get_host_and_port()
        yield S3Service(f"http://{host}:{port}", access_key, "test-secret")
    finally:
        server.stop()


def _silent(handler: Any, *_: object) -> None:
    """The server logs nothing: its lines would stand in the captured output of whatever test is running."""


_Environ = Mapping[str, Any]
_Application = Callable[[_Environ, Callable[..., Any]], Iterable[bytes]]


def _access_key_required(application: _Application, access_key: str) -> _Application:
    """A WSGI application that hands to `application` only what is signed with `access_key`."""

    def guarded(environ: _Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        signed = f"{environ.get('HTTP_AUTHORIZATION', '')}&{environ.get('QUERY_STRING', '')}"
        found = re.search(r"Credential=([^/%&]+)|AWSAccessKeyId=([^&]+)|AWS ([^:&]+):", signed)
        key = next(filter(None, found.groups())) if found else None
        if key == access_key:
            return application(environ, start_response)
        code = "AccessDenied" if key is None else "InvalidAccessKeyId"
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        start_response("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    return guarded
