"""Specification and result of a job that concatenates the text files of a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.protocol.fields import COUNT_MAX, Fields
from engine.protocol.wire import KEY_MAX

KIND = "echo"


@dataclass(frozen=True, slots=True)
class Text:
    """A text file in the object store."""

    key: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoSpec:
    """A job: ``sources`` in the sequence in which they are concatenated, and the token of its assignment."""

    job: str
    tenant: str
    folder: str
    sources: tuple[Text, ...]
    fence: int

    @property
    def result_key(self) -> str:
        """Return the key of the result, which no other assignment writes."""
        return f"echo/{self.tenant}/{self.folder}/{self.job}-{self.fence}"

    def to_json(self) -> dict[str, Any]:
        """Return the form that workers receive."""
        sources = [{"key": text.key, "size": text.size} for text in self.sources]
        about = {"job": self.job, "tenant": self.tenant, "folder": self.folder, "fence": self.fence}
        return about | {"kind": KIND, "sources": sources}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> EchoSpec:
        """Read what ``to_json`` wrote."""
        return cls(
            job=data["job"],
            tenant=data["tenant"],
            folder=data["folder"],
            fence=data["fence"],
            sources=tuple(Text(text["key"], text["size"]) for text in data["sources"]),
        )


@dataclass(frozen=True, slots=True)
class EchoResult:
    """The file that a job wrote."""

    key: str
    size: int

    def to_json(self) -> dict[str, Any]:
        """Return the form that workers report."""
        return {"kind": KIND, "blocks": self.to_log()}

    def to_log(self) -> list[dict[str, Any]]:
        """Return the entry in the command log."""
        return [{"key": self.key, "size": self.size}]


def read_result(data: object) -> EchoResult:
    """Read a result from a worker's report, which is untrusted. Raises InvalidMessage."""
    fields = Fields.of(data, "result")
    fields.choice("kind", (KIND,))
    blocks = fields.objects("blocks", 1)
    if not blocks:
        raise fields.error("blocks", "must not be empty")
    return EchoResult(blocks[0].text("key", KEY_MAX, empty=False), blocks[0].integer("size", 0, COUNT_MAX))
