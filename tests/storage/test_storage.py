"""The local disk and S3: what lies there, and what stays out of reach."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_tensorizer.storage import LocalStorage, S3Service, Storage, credentials, moto_service


@pytest.fixture(scope="module")
def service() -> Iterator[S3Service]:
    with moto_service() as service:
        yield service


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_what_is_put_can_be_got(kind: str, service: S3Service, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"\0weights")
    with service.bucket() as bucket:
        place: Storage = LocalStorage(tmp_path / "root") if kind == "local" else bucket
        (tmp_path / "root").mkdir()
        place.put("deep/key", source)
        place.get("deep/key", target)
        assert target.read_bytes() == place.read("deep/key") == b"\0weights"
        assert place.uri("deep/key").endswith("deep/key")
        with pytest.raises(FileNotFoundError, match="absent"):
            place.read("absent")


def test_buckets_are_fresh_and_leave_nothing(service: S3Service, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    with service.bucket() as first, service.bucket() as second:
        first.put("a", tmp_path / "x")
        assert first.keys() == ["a"]
        assert second.keys() == []
        names = {bucket["Name"] for bucket in first.client.list_buckets()["Buckets"]}
        assert {first.bucket, second.bucket} <= names
    assert not {bucket["Name"] for bucket in service.client().list_buckets()["Buckets"]} & {first.bucket, second.bucket}


def test_server_listens_on_loopback_and_ends(tmp_path: Path) -> None:
    from urllib.parse import urlparse

    from botocore.exceptions import EndpointConnectionError

    with moto_service() as service:
        address = urlparse(service.endpoint_url)
        assert address.hostname == "127.0.0.1"
        service.client().list_buckets()
    with pytest.raises(EndpointConnectionError):
        service.client().list_buckets()


def test_server_refuses_another_access_key(service: S3Service) -> None:
    from botocore.exceptions import ClientError

    with service.bucket():
        with pytest.raises(ClientError, match="InvalidAccessKeyId"):
            replace(service, access_key="SOMEBODY").client().list_buckets()


def test_secret_is_not_shown(service: S3Service) -> None:
    assert service.secret_key not in repr(service)


def test_users_credentials_are_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: S3Service
) -> None:
    import boto3
    from tensorizer import stream_io

    home = tmp_path / "home"
    (home / ".aws").mkdir(parents=True)
    (home / ".aws" / "credentials").write_text("[default]\naws_access_key_id = REAL\naws_secret_access_key = REAL\n")
    s3cfg = home / ".s3cfg"
    s3cfg.write_text("[default]\nhost_base = real.example\naccess_key = REAL\nsecret_key = REAL\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "REAL")
    monkeypatch.setenv("AWS_PROFILE", "default")
    monkeypatch.setattr(stream_io, "_s3_default_config_paths", (str(s3cfg),))
    stream_io._get_s3cfg_values.cache_clear()
    assert stream_io._get_s3cfg_values().s3_access_key == "REAL"
    before = dict(os.environ)
    with credentials.hidden():
        assert boto3.session.Session().get_credentials() is None
        assert not [name for name in os.environ if name.startswith("AWS_") and "REAL" in os.environ[name]]
        assert stream_io._get_s3cfg_values().s3_access_key is None
        assert not os.path.exists(os.path.expanduser("~/.aws"))
    with service.access():
        assert boto3.session.Session().get_credentials().access_key == service.access_key
    assert dict(os.environ) == before
    assert stream_io._get_s3cfg_values().s3_access_key == "REAL"
    stream_io._get_s3cfg_values.cache_clear()


def test_environment_keeps_what_others_set_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_A", "before")
    monkeypatch.delenv("CHANGED_MEANWHILE", raising=False)
    with credentials.environment({"AWS_B": "mine"}, without=("AWS_",)):
        assert "AWS_A" not in os.environ
        assert os.environ["AWS_B"] == "mine"
        monkeypatch.setenv("CHANGED_MEANWHILE", "theirs")
    assert os.environ["AWS_A"] == "before"
    assert "AWS_B" not in os.environ
    assert os.environ["CHANGED_MEANWHILE"] == "theirs"
