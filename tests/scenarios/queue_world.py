"""The block queue and the planner of the ``reference`` policy, as scenario files speak to them.

Keys are written tenant/shard, level 0 unless ``@level`` follows. Blocks are numbers; their creation time is the time of
their push unless ``created=`` says otherwise. Time moves by one with every push, or to ``at=``.
"""

from __future__ import annotations

from dataclasses import replace

from engine.lanes.profiles.plan.model import LevelPolicy, PlannedJob, QueuedBlock, QueueKey
from tests.reference_policy.block_queue import ReferenceQueue
from tests.reference_policy.plan import ReferencePlan

HOUR = 3_600_000
FAR = 10**12


class QueueWorld:
    """One queue, restartable."""

    def __init__(self) -> None:
        policy = LevelPolicy(blocks_max=3, age_ms=FAR, spread_ms=3 * HOUR)
        self.policies = dict.fromkeys(range(3), policy)
        self.rows: dict[tuple[QueueKey, str], QueuedBlock] = {}
        self.now_ms = 0
        self.planned: list[PlannedJob] = []
        self.queue = ReferenceQueue(self.policies)

    def run(self, command: str) -> str:
        word, *words = command.split()
        options = dict(text.split("=") for text in words if "=" in text)
        outcome: str = getattr(self, f"_{word}")([text for text in words if "=" not in text], options)
        self.queue.check()
        return outcome

    def _limits(self, words: list[str], options: dict[str, str]) -> str:
        """``limits [LEVEL…] max= age=``: of these levels, or of all."""
        for level in map(int, words or ["0", "1", "2"]):
            policy = self.policies[level]
            self.policies[level] = replace(
                policy,
                blocks_max=int(options.get("max", policy.blocks_max)),
                age_ms=int(options.get("age", policy.age_ms)),
            )
        self.queue = ReferenceQueue(self.policies)
        return ""

    def _now(self, words: list[str], options: dict[str, str]) -> str:
        self.now_ms = int(words[0])
        return ""

    def _push(self, words: list[str], options: dict[str, str]) -> str:
        key, outcomes = _key(words[0]), []
        for ulid in words[1:]:
            self.now_ms = int(options["at"]) if "at" in options else self.now_ms + int(options.get("every", 1))
            created = int(options.get("created", self.now_ms))
            block = QueuedBlock(id=0, ulid=ulid, arrived_at_ms=self.now_ms, created_at_ms=created, size_bytes=1)
            if self.queue.push(key, block):
                self.rows[key, ulid] = block
            else:
                outcomes.append(ulid)
        return f"rejected {' '.join(outcomes)}" if outcomes else ""

    def _arrive(self, words: list[str], options: dict[str, str]) -> str:
        """``arrive first=0 A0 B2 …``: blocks numbered from ``first``, one after another."""
        for number, word in enumerate(words, int(options.get("first", 0))):
            self._push([f"{word[0]}/{word[1:]}", str(number)], {})
        return ""

    def _delete(self, words: list[str], options: dict[str, str]) -> str:
        key, missed = _key(words[0]), []
        for ulid in words[1:]:
            self.rows.pop((key, ulid), None)
            if not self.queue.delete(key, ulid):
                missed.append(ulid)
        return f"missed {' '.join(missed)}" if missed else ""

    def _restart(self, words: list[str], options: dict[str, str]) -> str:
        """Rebuild the queue from its rows, as a process that starts does."""
        self.queue = ReferenceQueue(self.policies)
        for (key, _), block in sorted(self.rows.items(), key=lambda row: row[1].arrived_at_ms):
            self.queue.push(key, block)
        return ""

    def _show(self, words: list[str], options: dict[str, str]) -> str:
        """All keys: flushed batches with their holes, and what is staged."""
        return "; ".join(self._shown(key) for key in self.queue.queue_keys()) or "empty"

    def _shown(self, key: QueueKey) -> str:
        flushed = [
            "[" + " ".join(block.ulid if block else "_" for block in batch.slots) + "]"
            for batch in self.queue.batches_of(key)
        ]
        staged = " ".join(block.ulid for block in self.queue.staged(key))
        return " ".join([_name(key), *flushed, *([f"staged {staged}"] if staged else [])])

    def _batches(self, words: list[str], options: dict[str, str]) -> str:
        """All flushed batches in the order of their flush."""
        listed = [
            f"{_name(batch.key)} " + " ".join(block.ulid for block in batch.blocks())
            for level in self.queue.levels()
            for batch in self.queue.batches(level)
        ]
        return "; ".join(listed) or "none"

    def _count(self, words: list[str], options: dict[str, str]) -> str:
        levels = [self.queue.statistics(level) for level in self.queue.levels()]
        blocks, queues, batches = (sum(getattr(s, name) for s in levels) for name in ("blocks", "queues", "batches"))
        return f"{blocks} blocks, {queues} queues, {batches} batches"

    def _plan(self, words: list[str], options: dict[str, str]) -> str:
        """``plan [COUNT]``: the jobs that can be made now; nothing is changed by it."""
        plan = ReferencePlan(self.queue, policies=self.policies, now_ms=self.now_ms)
        self.planned = []
        while len(self.planned) < int(words[0] if words else 100) and (job := plan.next_job()) is not None:
            self.planned.append(job)
        return "; ".join(_job(job, "names" in options) for job in self.planned) or "none"

    def _apply(self, words: list[str], options: dict[str, str]) -> str:
        """Create the jobs planned last: their blocks leave the queue."""
        return "; ".join(
            filter(
                None, (self._delete([_name(_job_key(job)), *(b.ulid for b in job.blocks)], {}) for job in self.planned)
            )
        )


def _key(text: str) -> QueueKey:
    place, _, level = text.partition("@")
    tenant, _, shard = place.partition("/")
    return ("profiles", tenant, int(shard), int(level or 0))


def _job_key(job: PlannedJob) -> QueueKey:
    return (job.lane, job.tenant, job.shard, job.level)


def _name(key: QueueKey) -> str:
    _, tenant, shard, level = key
    return f"{tenant}/{shard}" + (f"@{level}" if level else "")


def _job(job: PlannedJob, with_name: bool) -> str:
    sources = " ".join(block.ulid for block in job.blocks)
    return f"{_name(_job_key(job))} {sources}" + (f" ({job.name})" if with_name else "")
