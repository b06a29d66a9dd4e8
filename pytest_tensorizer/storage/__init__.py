"""Where the bytes lie: the :class:`Storage` protocol, the local disk and S3."""

from pytest_tensorizer.storage.local import LocalStorage
from pytest_tensorizer.storage.protocol import Storage
from pytest_tensorizer.storage.s3 import S3Bucket, S3Service, moto_service

__all__ = ["LocalStorage", "S3Bucket", "S3Service", "Storage", "moto_service"]
