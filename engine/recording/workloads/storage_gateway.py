"""A storage gateway: S3 and SQS calls prepared, signed and parsed by botocore, answered inside the process."""

from __future__ import annotations

import io
import itertools
from typing import Any

import botocore.session
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

OBJECTS = 60
SESSION_CALLS = 40
"""Calls per session; a new session simulates the rotation of credentials."""


class Answer(io.BytesIO):
    """A response body with the interface of urllib3."""

    def stream(self, **_options: object) -> Any:
        yield self.read()


def main() -> None:
    """Serve listings, uploads, downloads and messages, endlessly."""
    for round_number in itertools.count():
        session = botocore.session.Session()
        session.set_credentials("example", "not-a-secret")
        store, queue = (session.create_client(name, region_name="eu-central-1") for name in ("s3", "sqs"))
        for client in (store, queue):
            client.meta.events.register("before-send", answer)
        for call in range(SESSION_CALLS):
            key = f"segments/{round_number % 7}/{call}/block.bin"
            store.put_object(Bucket="profiles", Key=key, Body=b"x" * 2000, Metadata={"round": str(round_number)})
            store.head_object(Bucket="profiles", Key=key)
            sum(entry["Size"] for entry in store.list_objects_v2(Bucket="profiles", Prefix=key)["Contents"])
            store.generate_presigned_url("get_object", Params={"Bucket": "profiles", "Key": key})
            queue.send_message(QueueUrl="https://sqs.eu-central-1.amazonaws.com/1/jobs", MessageBody=key)


def answer(request: AWSPreparedRequest, **_event: object) -> AWSResponse:
    """Return a response without using the network."""
    headers, body = {"ETag": '"9a0364b9e99bb480dd25e1f0284c8555"', "Content-Length": "2000"}, b""
    if "list-type=2" in request.url:
        headers, body = {"Content-Type": "application/xml"}, listing()
    elif "sqs" in request.url:
        headers = {"Content-Type": "application/x-amz-json-1.0"}
        body = b'{"MessageId": "1", "MD5OfMessageBody": "00000000000000000000000000000000"}'
    return AWSResponse(request.url, 200, headers, Answer(body))


def listing() -> bytes:
    """Return a bucket listing as S3 writes it."""
    entries = "".join(
        f"<Contents><Key>segments/{number}</Key><LastModified>2024-07-11T12:00:00.000Z</LastModified>"
        f"<ETag>&quot;{number:032x}&quot;</ETag><Size>{number}</Size></Contents>"
        for number in range(OBJECTS)
    )
    return f"<ListBucketResult><Name>profiles</Name><KeyCount>{OBJECTS}</KeyCount>{entries}</ListBucketResult>".encode()


if __name__ == "__main__":
    main()
