"""Object store in an S3-compatible bucket, through boto3.

All requests go through ``_Requests``, which counts them, retries them, and replaces errors of boto3 by StorageErrors.
Streams are multipart uploads; an upload that fails or is cancelled is aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from engine.storage.keys import check_folder, check_key, check_prefix
from engine.storage.model import (
    ConditionRefused,
    InvalidRange,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    ObjectWriter,
    StorageError,
)
from engine.storage.retry import RetryPolicy
from engine.storage.s3_location import S3Location
from engine.storage.usage import StorageUsage

PART_SIZE = 8 << 20
"""Bytes of a part of a multipart upload; S3 requires at least 5 MiB."""
PARTS_PER_SIZE = 1000
"""After this many parts the part size grows by another PART_SIZE, so that 10,000 parts hold about 440 GiB."""
PARTS_MAX = 10_000
"""The limit of S3."""
CONNECTIONS_MAX = 32
CONNECT_SECONDS = 5
READ_SECONDS = 60

RETRYABLE_CODES = frozenset(
    {"SlowDown", "InternalError", "RequestTimeout", "ServiceUnavailable", "Throttling", "RequestTimeTooSkewed"}
)
MISSING_CODES = frozenset({"NoSuchKey", "404", "NotFound"})
UNSUPPORTED_CODES = frozenset({"NotImplemented", "501", "InvalidArgument", "InvalidRequest"})

_Answer = TypeVar("_Answer")


class S3Store(ObjectStore):
    """An object store in a bucket, or below a prefix of it. boto3 finds the credentials."""

    def __init__(self, location: S3Location, url: str, retry_policy: RetryPolicy | None = None) -> None:
        self.location = location
        self.url = url
        self.usage = StorageUsage()
        self._requests = _Requests(_client(location), location, self.usage, retry_policy or RetryPolicy())

    def get(self, key: str) -> bytes:
        return self._requests.get("get", key, None)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise InvalidRange("get_range", key, f"{length} bytes at {offset}")
        if length == 0:  # HTTP has no empty ranges
            if offset > self.head(key).size:
                raise InvalidRange("get_range", key, f"0 bytes at {offset}, beyond the end")
            return b""
        return self._requests.get("get_range", key, (offset, length))

    def head(self, key: str) -> ObjectInfo:
        answer = self._requests.send("head", key, lambda c, place: c.head_object(**place))
        return ObjectInfo(key=key, size=answer["ContentLength"], modified_at=answer["LastModified"].timestamp())

    def put(self, key: str, data: bytes) -> ObjectInfo:
        return self._written(key, len(data), self._requests.put(key, data))

    def create(self, key: str, data: bytes) -> bool:
        try:
            self._requests.send(
                "create", key, lambda c, place: c.put_object(Body=data, IfNoneMatch="*", **place), len(data)
            )
        except _KeyTaken:
            return False
        return True

    def open_writer(self, key: str) -> ObjectWriter:
        check_key("put", key)
        return S3Writer(self._requests, key, self._written)

    def _written(self, key: str, size: int, answer: dict[str, Any]) -> ObjectInfo:
        """Return the info of an object just written; the Date header of the response saves a head request."""
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        if not date:
            return self.head(key)
        return ObjectInfo(key=key, size=size, modified_at=parsedate_to_datetime(date).timestamp())

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        check_prefix("list", prefix)
        skipped = len(self.location.prefix)
        page: dict[str, Any] = {"Prefix": self.location.prefix + prefix}
        if start_after:
            page["StartAfter"] = self.location.prefix + start_after
        for answer in self._requests.list_pages(prefix, page):
            for entry in answer.get("Contents", ()):
                if not entry["Key"].endswith("/"):  # placeholders of folders, which some consoles create
                    yield ObjectInfo(
                        key=entry["Key"][skipped:], size=entry["Size"], modified_at=entry["LastModified"].timestamp()
                    )

    def list_folders(self, prefix: str = "") -> Iterator[str]:
        check_folder("list", prefix)
        page = {"Prefix": self.location.prefix + prefix, "Delimiter": "/"}
        for answer in self._requests.list_pages(prefix, page):
            for entry in answer.get("CommonPrefixes", ()):
                yield entry["Prefix"][len(self.location.prefix) :]

    def delete(self, key: str) -> None:
        self._requests.send("delete", key, lambda c, place: c.delete_object(**place))

    def sweep_unfinished(self, *, before: float) -> int:
        swept = 0
        for key, upload_id in self._requests.uploads(before):
            self._requests.abort_upload(key, upload_id)
            swept += 1
        return swept

    def close(self) -> None:
        self._requests.client.close()


class S3Writer(ObjectWriter):
    """Buffers up to one part; an object smaller than a part is a plain put, any other a multipart upload."""

    def __init__(
        self, requests: _Requests, key: str, describe: Callable[[str, int, dict[str, Any]], ObjectInfo]
    ) -> None:
        self._requests, self._key, self._describe = requests, key, describe
        self._buffer = bytearray()
        self._size = 0
        self._upload_id = ""
        self._etags: list[str] = []
        self._info: ObjectInfo | None = None
        self._is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._require_open()
        if isinstance(data, bytes) and not self._buffer and len(data) == self._part_size():
            self._upload_part(data)  # no copy of data that comes in whole parts
            return
        rest = memoryview(data).cast("B")
        while rest:
            room = self._part_size() - len(self._buffer)
            self._buffer += rest[:room]
            rest = rest[room:]
            if len(self._buffer) == self._part_size():
                self._upload_buffer()

    def commit(self) -> ObjectInfo:
        if self._info is None:
            self._require_open()
            try:
                self._info = self._finish()
                self._is_closed = True
            finally:
                self.abort()
        return self._info

    def abort(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._buffer.clear()
            if self._upload_id:
                self._requests.abort_upload(self._key, self._upload_id)

    def _require_open(self) -> None:
        if self._is_closed:
            raise StorageError("put", self._key, "the writer is already committed or aborted")

    def _part_size(self) -> int:
        return PART_SIZE * (1 + len(self._etags) // PARTS_PER_SIZE)

    def _upload_buffer(self) -> None:
        self._upload_part(bytes(self._buffer))
        self._buffer.clear()

    def _upload_part(self, body: bytes) -> None:
        if len(self._etags) == PARTS_MAX:
            raise StorageError("put", self._key, f"the object needs more than {PARTS_MAX} parts")
        if not self._upload_id:
            self._upload_id = self._requests.begin_upload(self._key)
        number = len(self._etags) + 1
        self._etags.append(self._requests.upload_part(self._key, self._upload_id, number, body))
        self._size += len(body)

    def _finish(self) -> ObjectInfo:
        if not self._upload_id:
            return self._describe(self._key, len(self._buffer), self._requests.put(self._key, bytes(self._buffer)))
        if self._buffer:
            self._upload_buffer()
        answer = self._requests.complete_upload(self._key, self._upload_id, self._etags)
        return self._describe(self._key, self._size, answer)


class _KeyTaken(Exception):
    """A conditional create failed because the key exists."""


class _Requests:
    """Sends requests: counts and retries them and translates errors."""

    def __init__(self, client: Any, location: S3Location, usage: StorageUsage, retry_policy: RetryPolicy) -> None:
        self.client, self._location, self._usage, self._retry_policy = client, location, usage, retry_policy

    def send(
        self, operation: str, key: str, request: Callable[[Any, dict[str, str]], _Answer], byte_count: int = 0
    ) -> _Answer:
        """Call ``request(client, {Bucket, Key})`` with retries; ``byte_count`` is what it moves."""
        place = {"Bucket": self._location.bucket, "Key": self._location.prefix + check_key(operation, key)}
        return self._repeat(operation, key, lambda: request(self.client, place), byte_count)

    def _repeat(self, operation: str, key: str, request: Callable[[], _Answer], byte_count: int = 0) -> _Answer:
        def attempt(_number: int) -> _Answer:
            self._usage.record(operation, byte_count)
            return request()

        try:
            return self._retry_policy.run(attempt, _is_retryable)
        except (ClientError, BotoCoreError, HTTPError) as error:
            raise _translated(operation, key, error) from error

    def put(self, key: str, data: bytes) -> dict[str, Any]:
        """Write a whole object and return the response."""
        answer: dict[str, Any] = self.send("put", key, lambda c, place: c.put_object(Body=data, **place), len(data))
        return answer

    def get(self, operation: str, key: str, span: tuple[int, int] | None) -> bytes:
        """Return the bytes of an object, or of its range (offset, length > 0); an interrupted body is read again."""
        condition = {"Range": f"bytes={span[0]}-{span[0] + span[1] - 1}"} if span else {}

        def read(client: Any, place: dict[str, str]) -> bytes:
            answer = client.get_object(**condition, **place)
            with answer["Body"] as body:
                # Checked before the body is read, so that its size is bounded by the requested length.
                if span and answer["ContentLength"] != span[1]:
                    body.close()
                    raise InvalidRange(operation, key, f"{span[1]} bytes at {span[0]} exceed the object")
                data: bytes = body.read()
            return data

        data = self.send(operation, key, read)
        self._usage.record_bytes(operation, len(data))
        return data

    def list_pages(self, prefix: str, page: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the pages of a listing; ``page`` holds the arguments of the first request."""
        page = page | {"Bucket": self._location.bucket}
        while True:
            answer: dict[str, Any] = self._repeat("list", prefix, lambda: self.client.list_objects_v2(**page))
            yield answer
            if not answer.get("IsTruncated"):
                return
            page["ContinuationToken"] = answer["NextContinuationToken"]

    def begin_upload(self, key: str) -> str:
        """Create a multipart upload and return its id."""
        answer = self.send("create_upload", key, lambda c, place: c.create_multipart_upload(**place))
        return str(answer["UploadId"])

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes) -> str:
        """Upload part ``number``, counted from 1, and return its entity tag."""
        answer = self.send(
            "upload_part",
            key,
            lambda c, place: c.upload_part(UploadId=upload_id, PartNumber=number, Body=body, **place),
            len(body),
        )
        return str(answer["ETag"])

    def complete_upload(self, key: str, upload_id: str, etags: list[str]) -> dict[str, Any]:
        """Complete a multipart upload. If a retry finds no upload, the first request has succeeded."""
        parts = {"Parts": [{"ETag": etag, "PartNumber": number} for number, etag in enumerate(etags, 1)]}
        sent = []

        def complete(client: Any, place: dict[str, str]) -> dict[str, Any]:
            sent.append(True)
            try:
                answer = client.complete_multipart_upload(UploadId=upload_id, MultipartUpload=parts, **place)
            except ClientError as error:
                if len(sent) == 1 or _code(error) != "NoSuchUpload":
                    raise
                answer = client.head_object(**place)
            return dict(answer)

        return self.send("complete_upload", key, complete)

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Abort an upload and delete its parts; a missing upload is not an error."""

        def abort(client: Any, place: dict[str, str]) -> None:
            try:
                client.abort_multipart_upload(UploadId=upload_id, **place)
            except ClientError as error:
                if _code(error) != "NoSuchUpload":
                    raise

        self.send("abort_upload", key, abort)

    def uploads(self, before: float) -> Iterator[tuple[str, str]]:
        """Yield (key, upload id) of the multipart uploads begun before ``before`` (Unix seconds)."""
        place = {"Bucket": self._location.bucket, "Prefix": self._location.prefix}
        page: dict[str, str] = {}
        while True:
            answer = self._uploads_page(place | page)
            for upload in answer.get("Uploads", ()):
                if upload["Initiated"].timestamp() < before:
                    yield upload["Key"][len(self._location.prefix) :], upload["UploadId"]
            if not answer.get("IsTruncated"):
                return
            page = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}

    def _uploads_page(self, arguments: dict[str, str]) -> dict[str, Any]:
        page: dict[str, Any] = self._repeat("list_uploads", "", lambda: self.client.list_multipart_uploads(**arguments))
        return page


def _client(location: S3Location) -> Any:
    config = Config(
        # RetryPolicy retries and counts every request; two layers of retries would multiply.
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=CONNECTIONS_MAX,
        # Other stores rarely have a DNS name per bucket.
        s3={"addressing_style": "path" if location.endpoint else "auto"},
        # Many S3-compatible stores reject checksum trailers; the objects have checksums of their own.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = boto3.session.Session()
    return session.client("s3", endpoint_url=location.endpoint, region_name=location.region, config=config)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _is_retryable(error: Exception) -> bool:
    if isinstance(error, ClientError):
        # 409: a conditional create conflicts with a concurrent one.
        return _code(error) in RETRYABLE_CODES or _status(error) in (409, 429, 500, 502, 503, 504)
    return isinstance(error, BotoCoreError | HTTPError) and type(error).__name__ not in PERMANENT_ERRORS


PERMANENT_ERRORS = frozenset({"NoCredentialsError", "PartialCredentialsError", "ParamValidationError", "NoRegionError"})


def _translated(operation: str, key: str, error: Exception) -> Exception:
    if not isinstance(error, ClientError):
        return StorageError(operation, key, str(error))
    code, status = _code(error), _status(error)
    if operation == "create" and status == 412:
        return _KeyTaken()
    if operation == "create" and code in UNSUPPORTED_CODES:
        return ConditionRefused(operation, key, f"the store does not support conditional creates ({code})")
    if code in MISSING_CODES:
        return ObjectNotFound(operation, key, "no object has this key")
    if code in ("InvalidRange", "416"):
        return InvalidRange(operation, key, "the range starts beyond the end of the object")
    message = error.response.get("Error", {}).get("Message", "")
    return StorageError(operation, key, f"{code or status} {message}".strip())
