"""Replace merged files by results, chunk by chunk, in the transaction that completes the jobs.

Changes since planning decide: a chunk is published, published with late files beside its outputs, or aborted and its
outputs discarded. Chunks that share a segment commit together, since a file is visible as a whole or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import F

from engine.lanes.tables.jobs import ChunkResult, TableMergeResult
from engine.lanes.tables.plan.arrivals import Stamp
from engine.lanes.tables.plan.commit import ChunkCommit, CommitAction, PlannedChunk, decide_commits
from engine.lanes.tables.plan.granularity import Granularity
from engine.lanes.tables.plan.policy import TimelinePolicy
from webadmin.base.database import dialect
from webadmin.lanes.tables.column_sizes import REASON_MAX
from webadmin.lanes.tables.models import Chunk, DataSource, Segment
from webadmin.lanes.tables.policies import granularity_of, mark_dirty, policy_of
from webadmin.lanes.tables.segment_view import merged, touching
from webadmin.lanes.tables.services.end_tasks import schedule_orphan_deletion
from webadmin.lanes.tables.services.register_files import move_files
from webadmin.lanes.tables.states import ChunkOutcome, ChunkStatus, SegmentState, TaskState
from webadmin.lanes.tables.task_models import DiscardedOutput, Task, TaskChunk
from webadmin.schedule.errors import SourcesChanged
from webadmin.schedule.lanes import SwapMoment

log = logging.getLogger(__name__)

DISCARD_DELAY_MS = 60_000
"""Delay before outputs of an aborted chunk are deleted; they were never visible."""
_OUTCOMES = {
    CommitAction.PUBLISH: ChunkOutcome.PUBLISHED,
    CommitAction.CARRY_OVER: ChunkOutcome.CARRIED_OVER,
    CommitAction.ABORT: ChunkOutcome.ABORTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The result of a task's job, by the start of each chunk that has rows."""

    task_id: int
    chunks: Mapping[int, ChunkResult]
    result: TableMergeResult


def commit_tasks(completions: Sequence[Completion], moment: SwapMoment) -> None:
    """Commit the chunks of these tasks. Raises SourcesChanged if a task is no longer open."""
    wanted = [one.task_id for one in completions]
    sources = sorted(set(Task.objects.filter(id__in=wanted).values_list("source_id", flat=True)))
    held = {row.id: row for row in dialect.locked(DataSource.objects.filter(id__in=sources).order_by("id"))}
    tasks = Task.objects.filter(id__in=wanted, state=TaskState.OPEN).select_related("source__policy").in_bulk()
    if missing := set(wanted) - tasks.keys():
        raise SourcesChanged(f"tasks {sorted(missing)} are not open any more")
    for one in completions:
        task = tasks[one.task_id]
        _Commit(task, held[task.source_id], one, moment).run()


class _Commit:
    """The commit of one task; its table is locked."""

    def __init__(self, task: Task, source: DataSource, done: Completion, moment: SwapMoment) -> None:
        self.task = task
        self.source = source
        self.done = done
        self.moment = moment
        self.now_ms = dialect.clock_ms()
        self.granularity: Granularity = granularity_of(task.source.policy)
        self.policy: TimelinePolicy = policy_of(task.source.policy)
        self.sequence = source.sequence + 1
        self.chunks = {row.start_ms: row for row in TaskChunk.objects.filter(task=task).order_by("start_ms")}

    def run(self) -> None:
        commits = self._decide()
        published = [one for one in commits if one.action is not CommitAction.ABORT]
        touched = {(one.start_ms, one.end_ms) for one in commits}
        self._note_chunks(commits)
        self._discard([one for one in commits if one.action is CommitAction.ABORT])
        if published:
            touched |= self._hide(published)
            for one in published:
                self._publish(one)
            DataSource.objects.filter(id=self.source.id).update(sequence=self.sequence)
            self.source.sequence = self.sequence
        mark_dirty(self.source, self.granularity, touched)
        self._end_task()

    def _decide(self) -> list[ChunkCommit]:
        if self.task.grid != self.policy.granularity.fingerprint():
            why = "the granularity was changed meanwhile"
            return [
                ChunkCommit(start_ms=row.start_ms, end_ms=row.end_ms, action=CommitAction.ABORT, reason=why)
                for row in self.chunks.values()
            ]
        planned = [
            PlannedChunk(
                start_ms=row.start_ms,
                end_ms=row.end_ms,
                digest=row.digest,
                keys=tuple(row.keys),
                shared=tuple(row.shared),
            )
            for row in self.chunks.values()
        ]
        there = touching(self.source, [(one.start_ms, one.end_ms) for one in planned])
        found = {
            one.start_ms: [each for each in there if each.start_ms < one.end_ms and one.start_ms < each.end_ms]
            for one in planned
        }
        return decide_commits(planned, found, now_ms=self.now_ms, partial_visibility=False)

    def _hide(self, published: Sequence[ChunkCommit]) -> set[tuple[int, int]]:
        """Mark the merged files as replaced; return the intervals of those that touch several chunks."""
        keys = {key for one in published for key in self.chunks[one.start_ms].keys}
        keys -= self._tombstones_beyond(keys, published)
        planned = Segment.objects.filter(id__in=keys, source=self.source, state=SegmentState.VISIBLE)
        wide = set(planned.filter(is_spanning=True).values_list("start_ms", "end_ms"))
        if planned.update(
            state=SegmentState.REPLACED,
            replaced_in=self.sequence,
            replaced_by=self.task,
            reason=f"merged by task {self.task.id}",
        ) != len(keys):
            raise SourcesChanged(f"files of task {self.task.id} are not visible any more")
        return wide

    def _tombstones_beyond(self, keys: set[int], published: Sequence[ChunkCommit]) -> set[int]:
        """Return the tombstones that extend beyond the published chunks; they stay visible."""
        inside = merged((one.start_ms, one.end_ms) for one in published)
        wide = Segment.objects.filter(id__in=keys, is_tombstone=True, is_spanning=True)
        return {
            key
            for key, start, end in wide.values_list("id", "start_ms", "end_ms")
            if not any(low <= start and end <= high for low, high in inside)
        }

    def _publish(self, commit: ChunkCommit) -> None:
        """Publish the outputs of a chunk, and stamp late files after them."""
        result = self.done.chunks.get(commit.start_ms)
        outputs = [] if result is None else list(result.outputs)
        rows = [
            Segment(
                source=self.source,
                path=file.path,
                folder=file.path.rpartition("/")[0],
                start_ms=commit.start_ms,
                end_ms=commit.end_ms,
                version=commit.version,
                partition=place,
                size_bytes=file.size,
                row_count=file.rows,
                first_ms=file.min_time_ms,
                last_ms=file.max_time_ms,
                checksum=f"crc32c:{file.crc32c:08x}",
                made_by=self.task,
                added_sequence=self.sequence,
                created_at_ms=self.now_ms,
            )
            for place, file in enumerate(outputs)
        ]
        made = Segment.objects.bulk_create(rows)
        stamps = [
            Stamp(
                number=key,
                start_ms=commit.start_ms,
                end_ms=commit.end_ms,
                version=commit.version,
                partition=len(outputs) + place,
            )
            for place, key in enumerate(commit.carried)
        ]
        move_files(self.source, stamps, self.granularity)
        Chunk.objects.filter(source=self.source, start_ms=commit.start_ms).update(
            state=ChunkStatus.STABLE,
            outputs=sorted(row.id for row in made),
            outputs_fingerprint=self.policy.output_fingerprint() if self._is_of_this_policy() else "",
            failures=0,
            is_quarantined=False,
            quarantine_reason="",
            commits=F("commits") + 1,
            committed_at_ms=self.now_ms,
        )

    def _is_of_this_policy(self) -> bool:
        """Return whether the task was planned under the current policy.

        Otherwise its outputs are analysed like other files.
        """
        return self.task.fingerprint == self.policy.fingerprint()

    def _note_chunks(self, commits: Sequence[ChunkCommit]) -> None:
        for commit in commits:
            row = self.chunks[commit.start_ms]
            result = self.done.chunks.get(commit.start_ms)
            row.is_open, row.ended_at_ms = False, self.now_ms
            row.outcome, row.why = _OUTCOMES[commit.action], commit.reason[:REASON_MAX]
            if commit.action is not CommitAction.ABORT:
                row.output_count = 0 if result is None else len(result.outputs)
                row.output_bytes = 0 if result is None else result.bytes_written
                row.row_count = 0 if result is None else result.rows_written
        names = ["is_open", "ended_at_ms", "outcome", "why", "output_count", "output_bytes", "row_count"]
        TaskChunk.objects.bulk_update(self.chunks.values(), names, batch_size=500)

    def _discard(self, aborted: Sequence[ChunkCommit]) -> None:
        """Schedule the deletion of outputs of aborted chunks."""
        DiscardedOutput.objects.bulk_create(
            DiscardedOutput(
                source=self.source,
                task=self.task,
                path=file.path,
                reason=commit.reason[:REASON_MAX],
                created_at_ms=self.now_ms,
                delete_at_ms=self.now_ms + DISCARD_DELAY_MS,
            )
            for commit in aborted
            if commit.start_ms in self.done.chunks
            for file in self.done.chunks[commit.start_ms].outputs
        )
        for commit in aborted:
            log.info("chunk_given_up table=%s start_ms=%d why=%s", self.source, commit.start_ms, commit.reason)

    def _end_task(self) -> None:
        chunks = self.done.result.chunks
        Task.objects.filter(id=self.task.id).update(
            state=TaskState.DONE,
            finished_at_ms=self.now_ms,
            bytes_read=sum(one.bytes_read for one in chunks),
            bytes_written=sum(one.bytes_written for one in chunks),
            rows_read=sum(one.rows_read for one in chunks),
            rows_written=sum(one.rows_written for one in chunks),
        )
        Chunk.objects.filter(task=self.task).update(task=None)
        DataSource.objects.filter(id=self.source.id).update(revision=F("revision") + 1)
        schedule_orphan_deletion([self.task], self.now_ms)
