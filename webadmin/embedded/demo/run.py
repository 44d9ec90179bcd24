"""The demonstration from start to end, in the environment of its own home folder.

Recorded profiles → stack → pushes → query → compaction to the fix-point → the same query. With objects of another
program: copy → index → query → stack → compaction → the same query.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.core.management import call_command
from django.db import connections

from engine.formats.profile_block.container.metadata_file import read_metadata_file
from engine.storage import ObjectStore, open_store
from webadmin.embedded.addresses import free_port
from webadmin.embedded.demo.figures import seconds_text, size_text
from webadmin.embedded.demo.foreign import NothingToCompact, copy_blocks, find_metadata_file
from webadmin.embedded.demo.outcome import Before, Comparison, OriginalResult, Outcome
from webadmin.embedded.demo.plan import Recording
from webadmin.embedded.demo.policies import ACTOR, keep_everything, pause_compaction, resume_compaction, shorten_ages
from webadmin.embedded.demo.question import Question, choose_question, run_question, time_range_ms
from webadmin.embedded.demo.recordings import ensure_recordings
from webadmin.embedded.demo.sdk import SdkProgramFailed
from webadmin.embedded.demo.steps import Bar, Steps
from webadmin.embedded.demo.summary import answer_table, duration_table, level_table, query_table, sdk_text
from webadmin.embedded.demo.watch import Progress, live_blocks, wait_for_the_fix_point
from webadmin.embedded.demo.writing import SDK_QUESTION, WritePath
from webadmin.embedded.running_stack import running_stack
from webadmin.embedded.stack import StackSettings, describe_stack
from webadmin.embedded.stack_home import Login, prepare_login, prepare_worker_credential
from webadmin.lanes.profiles.services import import_blocks
from webadmin.query.flame_page.address import flame_address

STEP_COUNT = 6
STACK_LOG = "stack.log"
SDK_ROWS = 3  # Rows shown of the result for the SDK's program; all are compared.


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Options of the command. ``bucket`` is "" if the demonstration records programs and pushes their profiles."""

    home: Path
    recordings: Path
    record_seconds: float
    segment_count: int
    bucket: str = ""
    metadata: str | None = None
    age_seconds: int | None = None


class Demonstration:
    """One run; see ``compacted``."""

    def __init__(self, settings: DemoSettings, steps: Steps) -> None:
        self._settings = settings
        self._steps = steps
        self._store: ObjectStore = open_store(self.store_url)
        self._seconds: dict[str, float] = {}
        self._bad_objects = 0
        self.login = Login(name="", password="", password_file=Path())
        self.address = ""

    @property
    def store_url(self) -> str:
        """Return the URL of the demonstration's object store, also the default of the processes in its home."""
        return f"file://{self._settings.home}/objects"

    @contextmanager
    def compacted(self) -> Iterator[Outcome]:
        """Run all steps up to the comparison; the stack runs until the block is left."""
        if self._settings.bucket:
            side_file = self._copy()
            self._register(side_file)
            before = self._query_before()
            with self._stack():
                yield self._compare(before, self._compact())
        else:
            recordings = self._record()
            with self._stack(is_paused=True):
                has_sdk = self._push(recordings)
                before = self._query_before(SDK_QUESTION if has_sdk else None)
                yield self._compare(before, self._compact())

    def _copy(self) -> Path | None:
        self._steps.begin(f"Copy the objects of {self._settings.bucket} (which is only read)")
        with self._timed("copy"), self._steps.bar("copying", 0) as bar:
            size = copy_blocks(self._settings.bucket, self._store, _counting(bar, "copying objects"))
        self._steps.say(f"{size_text(size)} copied with their keys")
        return find_metadata_file(self._settings.bucket, self._settings.metadata)

    def _register(self, side_file: Path | None) -> None:
        self._steps.begin("Register the objects in the index")
        with self._timed("index"):
            self._migrate()
            described = read_metadata_file(side_file.read_bytes()) if side_file else []
            outcome = import_blocks(store=self._store, actor=ACTOR, side_file=described)
        self._steps.say(f"{outcome.imported} blocks registered")
        for key, error in outcome.bad:
            self._steps.say(f"left out: {key}: {error}")
        self._bad_objects = len(outcome.bad) + len(outcome.conflicting)
        if not outcome.imported:
            raise NothingToCompact("no object could be registered")

    def _record(self) -> list[Recording]:
        self._steps.begin("Record profiles of real programs")
        with self._timed("recording"), self._steps.bar("recording", 0) as bar:
            recordings = ensure_recordings(
                self._settings.recordings, self._settings.record_seconds, _counting(bar, "recording programs")
            )
        windows = sum(len(recording.windows) for recording in recordings)
        services = sorted({recording.service for recording in recordings})
        self._steps.say(f"{windows} recorded profiles of {len(services)} programs: {', '.join(services)}")
        return recordings

    def _migrate(self) -> None:
        call_command("migrate", interactive=False, verbosity=0)
        keep_everything()
        changed = shorten_ages(self._settings.age_seconds)
        ages = ", ".join(f"level {level}: {was} s → {now} s" for level, (was, now) in changed.items())
        self._steps.say(f"only here, remainders wait shorter than usual before they are merged ({ages})")

    @contextmanager
    def _stack(self, *, is_paused: bool = False) -> Iterator[None]:
        """Run all processes, with their log in the home folder.

        With ``is_paused``, start on a new index with a pause.
        """
        self._steps.begin("Start Redis, segment writers, web, beat, control and the compactor node with Spark")
        if is_paused:
            self._migrate()
            pause_compaction()
            self._steps.say("compaction is paused until a question is answered from the segments as they lie")
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
            self._steps.say(
                f"{self.address}/admin/   login: {self.login.name}   password: in {self.login.password_file}"
            )
            yield

    def _push(self, recordings: Sequence[Recording]) -> bool:
        """Push until there are enough segments; return whether the SDK's program was among the senders."""
        self._steps.begin("Push them to the stack as programs do, for two tenants, while compaction is paused")
        write_path = WritePath(self.address, self._store, self._settings.home, self._steps)
        with self._timed("pushing"):
            return write_path.fill(recordings, self._settings.segment_count)

    def _query_before(self, sdk_question: Question | None = None) -> Before:
        """Choose the query and run it on the original objects."""
        self._steps.begin("Ask where it goes, before")
        blocks = live_blocks()
        question = choose_question(blocks, self._store)
        answer = run_question(question, blocks, self._store)
        self._steps.say(f"{question.text}: {answer.objects_opened} objects opened, {seconds_text(answer.seconds)}")
        asked = OriginalResult(question=question, answer=answer)
        if sdk_question is None:
            return Before(blocks=blocks, asked=asked)
        sdk = OriginalResult(question=sdk_question, answer=run_question(sdk_question, blocks, self._store))
        if not sdk.answer.functions:
            raise SdkProgramFailed(f"{sdk_question.service} ran with the SDK, and none of its profiles is found")
        self._steps.say(sdk_text(sdk))
        return Before(blocks=blocks, asked=asked, sdk=sdk)

    def _compact(self) -> Progress:
        """Wait until there is nothing left to compact."""
        self._steps.begin("Compact to the fix-point: poll, lease, merge, swap")
        blocks = len(live_blocks())
        resume_compaction()
        with self._timed("compaction"), self._steps.bar("waiting for the first poll", blocks) as bar:
            end = wait_for_the_fix_point(lambda now: bar.update(blocks - min(now.unsettled, blocks), now.text))
        self._steps.say(f"nothing left to compact: {end.live} live objects after {end.done} jobs")
        return end

    def _compare(self, before: Before, end: Progress) -> Outcome:
        """Run the queries again and show the tables."""
        self._steps.begin("Ask again, and compare")
        after = live_blocks()
        compared = [
            Comparison(question=one.question, before=one.answer, after=run_question(one.question, after, self._store))
            for one in (before.asked, before.sdk)
            if one is not None
        ]
        main = compared[0]
        for table in (
            level_table(before.blocks, after),
            query_table(main.before, main.after),
            answer_table(main),
            *(answer_table(one, SDK_ROWS) for one in compared[1:]),
            duration_table(self._seconds),
        ):
            self._steps.show(table)
        asked = main.question
        return Outcome(
            comparisons=compared,
            flame_path=flame_address(asked.tenant, asked.service, asked.profile_type, *time_range_ms(asked, after)),
            parked_jobs=end.parked_jobs,
            bad_objects=self._bad_objects,
            seconds=self._seconds,
        )

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._seconds[name] = time.monotonic() - started


def _counting(bar: Bar, text: str) -> Callable[[int, int], None]:
    return lambda done, total: bar.update(done, text, total=total)
