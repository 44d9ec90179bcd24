"""The demonstration from beginning to end, in the environment of its own home folder.

Objects (recorded here, or copied from somebody's folder) → index → question → stack → fix-point → the same question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from django.core.management import call_command
from django.db import connections

from engine.profiles.metadata_file import read_metadata_file
from engine.storage import ObjectStore, open_store
from webadmin.console.addresses import free_port
from webadmin.console.demo.figures import LiveBlock, differences, seconds_text, size_text
from webadmin.console.demo.foreign import NothingToCompact, copy_blocks, find_metadata_file
from webadmin.console.demo.plan import plan_segments
from webadmin.console.demo.policies import shorten_ages
from webadmin.console.demo.question import Answer, Question, ask, choose_question
from webadmin.console.demo.recordings import ensure_recordings
from webadmin.console.demo.segments import write_segments
from webadmin.console.demo.steps import Bar, Steps
from webadmin.console.demo.summary import answer_table, duration_table, level_table, query_table
from webadmin.console.demo.watch import Standing, live_blocks, wait_for_the_fix_point
from webadmin.console.running_stack import running_stack
from webadmin.console.stack import StackSettings, describe_stack
from webadmin.console.stack_home import Login, prepare_login, prepare_worker_credential
from webadmin.index.services import import_blocks

ACTOR = "manage.py demo"
STEP_COUNT = 6
STACK_LOG = "stack.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What was asked for. ``bucket`` is "" when the demonstration records programs itself."""

    home: Path
    recordings: Path
    record_seconds: float
    segment_count: int
    bucket: str = ""
    metadata: str | None = None
    age_seconds: int | None = None


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What there is to compare and to look at afterwards."""

    question: Question
    before: Answer
    after: Answer
    parked_jobs: int
    bad_objects: int
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def wrong(self) -> list[int]:
        """The positions at which the two answers differ."""
        return differences(self.before.functions, self.after.functions)

    @property
    def is_good(self) -> bool:
        """True if the answers are equal and no job or object was left behind."""
        same = not self.wrong and self.before.total_value == self.after.total_value
        return same and self.parked_jobs == 0 and self.bad_objects == 0


class Demonstration:
    """One run. ``prepare`` fills index and store, ``compact`` runs the stack, ``summarise`` shows what came of it."""

    def __init__(self, settings: DemoSettings, steps: Steps) -> None:
        self._settings = settings
        self._steps = steps
        self._store: ObjectStore = open_store(self.store_url)
        self._seconds: dict[str, float] = {}
        self._bad_objects = 0
        self.login = Login(name="", password="")
        self.address = ""

    @property
    def store_url(self) -> str:
        """The demonstration's own object store, also the default of the processes in its home."""
        return f"file://{self._settings.home}/objects"

    def prepare(self) -> list[LiveBlock]:
        """Make the objects and register them; returns the blocks before any compaction."""
        if self._settings.bucket:
            side_file = self._copy()
        else:
            side_file = None
            self._record_and_build()
        self._steps.begin("Register the objects in the index")
        with self._timed("index"):
            call_command("migrate", interactive=False, verbosity=0)
            self._shorten()
            self._import(side_file)
        return live_blocks()

    def ask_before(self, blocks: Sequence[LiveBlock]) -> tuple[Question, Answer]:
        """Choose the question and answer it from the objects as they came."""
        self._steps.begin("Ask where it goes, before")
        question = choose_question(blocks, self._store)
        answer = ask(question, blocks, self._store)
        self._steps.say(f"{question.text}: {answer.objects_opened} objects opened, {seconds_text(answer.seconds)}")
        return question, answer

    @contextmanager
    def stack(self) -> Iterator[None]:
        """Run all processes; their log goes to a file in the home folder."""
        self._steps.begin("Start Redis, web, beat, control and the compactor node with Spark")
        log_file = self._settings.home / STACK_LOG
        self.login = prepare_login(self._settings.home)
        stack = StackSettings(
            home=self._settings.home,
            web_port=free_port(),
            object_store_url=self.store_url,
            worker_credential=prepare_worker_credential(self._settings.home),
        )
        connections.close_all()
        self.address = stack.address
        self._steps.say(f"their log: {log_file}")
        started = time.monotonic()
        with running_stack(describe_stack(stack), log_file):
            self._seconds["start of the processes"] = time.monotonic() - started
            self._steps.say(f"{self.address}/admin/   login: {self.login.name}   password: {self.login.password}")
            yield

    def compact(self) -> Standing:
        """Wait until there is nothing left to compact."""
        self._steps.begin("Compact to the fix-point: poll, lease, merge, swap")
        blocks = len(live_blocks())
        with self._timed("compaction"), self._steps.bar("waiting for the first poll", blocks) as bar:
            end = wait_for_the_fix_point(lambda now: bar.update(blocks - min(now.unsettled, blocks), now.text))
        self._steps.say(f"nothing left to compact: {end.live} live objects after {end.done} jobs")
        return end

    def summarise(self, before: Sequence[LiveBlock], question: Question, answer: Answer, end: Standing) -> Outcome:
        """Ask again and show the tables."""
        self._steps.begin("Ask again, and compare")
        after = live_blocks()
        outcome = Outcome(
            question=question,
            before=answer,
            after=ask(question, after, self._store),
            parked_jobs=end.parked_jobs,
            bad_objects=self._bad_objects,
            seconds=self._seconds,
        )
        for table in (
            level_table(before, after),
            query_table(answer, outcome.after),
            answer_table(question, answer, outcome.after, outcome.wrong),
            duration_table(self._seconds),
        ):
            self._steps.show(table)
        return outcome

    def _copy(self) -> Path | None:
        self._steps.begin(f"Copy the objects of {self._settings.bucket} (which is only read)")
        with self._timed("copy"), self._steps.bar("copying", 0) as bar:
            size = copy_blocks(self._settings.bucket, self._store, _counting(bar, "copying objects"))
        self._steps.say(f"{size_text(size)} copied with their keys")
        return find_metadata_file(self._settings.bucket, self._settings.metadata)

    def _record_and_build(self) -> None:
        self._steps.begin("Record profiles of real programs, and write them as small segments")
        with self._timed("recording"), self._steps.bar("recording", 0) as bar:
            recordings = ensure_recordings(
                self._settings.recordings, self._settings.record_seconds, _counting(bar, "recording programs")
            )
        windows = sum(len(recording.windows) for recording in recordings)
        services = sorted({recording.service for recording in recordings})
        self._steps.say(f"{windows} recorded profiles of {len(services)} programs: {', '.join(services)}")
        self._steps.say("they are played several times, each time with its own time, for two tenants")
        count = self._settings.segment_count
        plan = plan_segments(recordings, segment_count=count, end_ms=int(time.time() * 1000))
        with self._timed("segments"), self._steps.bar("writing segments", count) as bar:
            written = write_segments(plan, self._store, lambda done: bar.update(done, "writing segments"))
        self._steps.say(
            f"{written.objects} segments, {size_text(written.bytes)}: {written.profiles} profiles, "
            f"{written.samples} samples, {written.functions} distinct functions"
        )

    def _shorten(self) -> None:
        changed = shorten_ages(self._settings.age_seconds)
        ages = ", ".join(f"level {level}: {was} s → {now} s" for level, (was, now) in changed.items())
        self._steps.say(f"only here, remainders wait shorter than usual before they are merged ({ages})")

    def _import(self, side_file: Path | None) -> None:
        described = read_metadata_file(side_file.read_bytes()) if side_file else []
        outcome = import_blocks(store=self._store, actor=ACTOR, side_file=described)
        self._steps.say(f"{outcome.imported} blocks registered")
        for key, error in outcome.bad:
            self._steps.say(f"left out: {key}: {error}")
        self._bad_objects = len(outcome.bad) + len(outcome.conflicting)
        if not outcome.imported:
            raise NothingToCompact("no object could be registered")

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._seconds[name] = time.monotonic() - started


def _counting(bar: Bar, text: str) -> Callable[[int, int], None]:
    return lambda done, total: bar.update(done, text, total=total)
