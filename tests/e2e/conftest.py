"""The S3 server that tests of whole processes share."""

from __future__ import annotations

from tests.object_stores import s3_credentials, s3_server

__all__ = ["s3_credentials", "s3_server"]
