"""An S3 server of few lines that answers out of files: for measurements, because a server in plain Python (moto) takes
more of a machine than the merge beside it.

It knows what ``engine.storage.s3`` asks: objects whole and by range, listings of keys or folders without pages,
multipart uploads whose parts come in order and are equally long but for the last. It checks no signature.
``python -m tests.file_s3 FOLDER [PREFIX]`` serves the folder and prints its port; keys are paths in it. With a prefix,
listings of anything else are refused, as by a policy of the bucket.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4
from xml.etree import ElementTree

from tests.object_stores import S3Server

PIECE_BYTES = 1 << 20
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
PARTS = ".parts"


@contextmanager
def running_file_s3(folder: Path, *, listed_below: str = "") -> Iterator[tuple[S3Server, int]]:
    """Serve a folder in a process of its own; yield the server and its process id.

    Listings of keys that do not begin with ``listed_below`` are refused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.file_s3", str(folder), listed_below]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield S3Server(f"http://127.0.0.1:{int(process.stdout.readline())}"), process.pid
        finally:
            process.kill()


def _move(socket: int, file: int, length: int) -> None:
    """Write the next ``length`` bytes of a socket to a file at its place; EOFError if they do not come."""
    out, into = os.pipe()
    try:
        while length:
            taken = os.splice(socket, into, min(length, PIECE_BYTES))
            if not taken:
                raise EOFError(f"{length} bytes of the body are missing")
            length -= taken
            while taken:
                taken -= os.splice(out, file, taken)
    finally:
        os.close(out)
        os.close(into)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    root: Path
    listed_below = ""
    part_bytes: ClassVar[dict[str, int]] = {}
    """How long the parts of an upload are."""

    def do_GET(self) -> None:
        query = self._query()
        if "list-type" in query:
            if query.get("prefix", "").startswith(self.listed_below):
                self._answer(200, self._listing())
            else:
                self._answer(403, b"<Error><Code>AccessDenied</Code><Message>not allowed</Message></Error>")
            return
        path = self._path()
        if not path.is_file():
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            first, last, status = self._range(size)
            if first >= size > 0 or last < first - 1:
                self._answer(416, b"<Error><Code>InvalidRange</Code></Error>")
                return
            self._head(status, last + 1 - first, path)
            self.wfile.flush()
            while first <= last:
                first += os.sendfile(self.connection.fileno(), file.fileno(), first, last + 1 - first)

    def do_HEAD(self) -> None:
        path = self._path()
        if path.is_file():
            self._head(200, path.stat().st_size, path)
        else:
            self._head(404, 0)

    def do_PUT(self) -> None:
        query, path = self._query(), self._path()
        left = int(self.headers["Content-Length"])
        place = 0
        if "uploadId" in query:
            path = self.root / PARTS / query["uploadId"]
            place = (int(query["partNumber"]) - 1) * self.part_bytes.setdefault(query["uploadId"], left)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if place else "wb", buffering=0) as file:
            file.seek(place)
            if left:
                # What was read along with the header; the rest goes from the socket to the file inside the kernel.
                left -= file.write(self.rfile.read(min(left, len(self.rfile.peek()))))  # type: ignore[attr-defined]
            _move(self.connection.fileno(), file.fileno(), left)
        self._answer(200, b"", etag=True)

    def do_POST(self) -> None:
        query, path = self._query(), self._path()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "uploads" in query:
            upload = uuid4().hex
            self._answer(200, f"<R xmlns='{NAMESPACE}'><UploadId>{upload}</UploadId></R>".encode())
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self.root / PARTS / query["uploadId"], path)
        self._answer(200, f"<R xmlns='{NAMESPACE}'><ETag>x</ETag></R>".encode())

    def do_DELETE(self) -> None:
        self._path().unlink(missing_ok=True)
        self._answer(204, b"")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _query(self) -> dict[str, str]:
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[-1] for name, values in query.items()}

    def _path(self) -> Path:
        return self.root / unquote(urlsplit(self.path).path).lstrip("/")

    def _range(self, size: int) -> tuple[int, int, int]:
        asked = self.headers.get("Range")
        if not asked:
            return 0, size - 1, 200
        first, _, last = asked.removeprefix("bytes=").partition("-")
        return int(first), min(int(last), size - 1), 206

    def _head(self, status: int, length: int, path: Path | None = None, *, etag: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        if path is not None:
            self.send_header("Last-Modified", formatdate(path.stat().st_mtime, usegmt=True))
        if etag or path is not None:
            self.send_header("ETag", '"x"')
        self.end_headers()

    def _answer(self, status: int, body: bytes, *, etag: bool = False) -> None:
        self._head(status, len(body), etag=etag)
        self.wfile.write(body)

    def _listing(self) -> bytes:
        bucket, query = self._path(), self._query()
        prefix = query.get("prefix", "")
        answer = ElementTree.Element("ListBucketResult", xmlns=NAMESPACE)
        folder = bucket / prefix.rpartition("/")[0]
        if "delimiter" in query:
            for path in sorted(path for path in folder.glob("*/") if not path.name.startswith(".")):
                common = ElementTree.SubElement(answer, "CommonPrefixes")
                ElementTree.SubElement(common, "Prefix").text = f"{path.relative_to(bucket).as_posix()}/"
            return ElementTree.tostring(answer)
        keys = {path.relative_to(bucket).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        for key in sorted(key for key in keys if key.startswith(prefix)):
            entry = ElementTree.SubElement(answer, "Contents")
            found = keys[key].stat()
            moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(found.st_mtime))
            for name, value in (("Key", key), ("Size", str(found.st_size)), ("LastModified", moment)):
                ElementTree.SubElement(entry, name).text = value
        return ElementTree.tostring(answer)


if __name__ == "__main__":
    _Handler.root = Path(sys.argv[1]).absolute()
    _Handler.listed_below = "".join(sys.argv[2:])
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
