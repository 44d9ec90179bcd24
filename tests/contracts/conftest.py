"""The stores that every contract test runs on."""

from tests.object_stores import s3_credentials, s3_server, s3_store

__all__ = ["s3_credentials", "s3_server", "s3_store"]
