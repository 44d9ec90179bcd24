"""The plain twin of the job queue: a dictionary, searched for its least entry."""

from __future__ import annotations

from collections.abc import Iterator

JobKey = tuple[int, int, int, int, str]


class JobQueue:
    """See ``engine.schedule.job_queue``."""

    def __init__(self) -> None:
        self._keys: dict[str, JobKey] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, name: str) -> bool:
        return name in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._keys, key=self._keys.__getitem__))

    def put(self, name: str, *, level: int, status: int, failures: int, expires_ms: int) -> None:
        self._keys[name] = (level, status, failures, expires_ms, name)

    def delete(self, name: str) -> bool:
        return self._keys.pop(name, None) is not None

    def levels(self) -> list[int]:
        return sorted({key[0] for key in self._keys.values()})

    def peek(self, level: int | None = None) -> str | None:
        keys = self._keys.values()
        least = min(keys if level is None else (key for key in keys if key[0] == level), default=None)
        return None if least is None else least[4]

    def pop(self, level: int | None = None) -> str | None:
        name = self.peek(level)
        if name is not None:
            del self._keys[name]
        return name

    def copy(self) -> JobQueue:
        other = JobQueue()
        other._keys = dict(self._keys)
        return other

    def check(self) -> None:
        assert all(key[4] == name for name, key in self._keys.items())
