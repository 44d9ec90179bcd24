"""Fill the demonstration's store through the write path: web receives pushes, writers build segments."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from engine.storage import ObjectStore
from webadmin.base.access.scopes import SCOPE_PUSH
from webadmin.base.access.services import issue_worker_credential
from webadmin.embedded.demo.figures import LiveBlock, size_text
from webadmin.embedded.demo.plan import TENANTS, Recording, plan_round
from webadmin.embedded.demo.policies import ACTOR
from webadmin.embedded.demo.pushing import SENDERS, Pusher
from webadmin.embedded.demo.question import Question
from webadmin.embedded.demo.route_planner import SERVICE
from webadmin.embedded.demo.sdk import sdk_program
from webadmin.embedded.demo.steps import Steps
from webadmin.embedded.demo.watch import live_blocks, live_count
from webadmin.lanes.profiles.services.recover_letters import recover_letters

SDK_TENANT = TENANTS[0]
SDK_QUESTION = Question(tenant=SDK_TENANT, service=SERVICE, profile_type="process_cpu:cpu:nanoseconds:cpu:nanoseconds")


class WritePath:
    """Pushes to a running stack at ``address``; ``store`` is the stack's."""

    def __init__(self, address: str, store: ObjectStore, home: Path, steps: Steps) -> None:
        self._address = address
        self._store = store
        self._home = home
        self._steps = steps

    def fill(self, recordings: Sequence[Recording], segment_count: int) -> bool:
        """Push rounds until there are ``segment_count`` segments; return whether a program with the SDK pushed too.

        Writers build a segment per shard and flush, so that a round adds one for every shard that has a service. Raises
        PushFailed, SdkProgramFailed.
        """
        passwords = {tenant: _push_credential(tenant) for tenant in TENANTS}
        with sdk_program(self._address, passwords[SDK_TENANT], self._home) as has_sdk:
            self._print_senders(has_sdk)
            self._push(recordings, segment_count, passwords)
        if letters := recover_letters(store=self._store).recovered:
            self._steps.say(f"{letters} segments whose writer did not reach the index in time were registered later")
        self._steps.say(_described(live_blocks()))
        return has_sdk

    def _push(self, recordings: Sequence[Recording], segment_count: int, passwords: dict[str, str]) -> None:
        with (
            Pusher(self._address, passwords) as pusher,
            self._steps.bar("pushing", segment_count) as bar,
        ):
            number, segments = 0, 0
            while segments < segment_count:
                pusher.push(plan_round(recordings, number, time_ms=time.time_ns() // 1_000_000))
                number, segments = number + 1, live_count()
                bar.update(min(segments, segment_count), "pushing, segments in the index")
        done = pusher.pushed
        self._steps.say(
            f"{done.requests} pushes acknowledged: {done.profiles} profiles, {done.samples} samples, "
            f"{done.functions} distinct functions"
        )

    def _print_senders(self, has_sdk: bool) -> None:
        self._steps.say(f"{SENDERS} senders play the recordings again and again, every profile with the present time")
        if has_sdk:
            self._steps.say(
                f"{SERVICE} runs beside them with the unmodified pyroscope SDK, configured with our address only"
            )
        else:
            self._steps.say("the pyroscope SDK is not installed (pip install pyroscope-io), so no program runs with it")


def _push_credential(tenant: str) -> str:
    """Return a credential that is valid only for pushes of the tenant."""
    scopes = (SCOPE_PUSH, f"tenant:{tenant}")
    return issue_worker_credential(name=f"demo-{tenant}", scopes=scopes, actor=ACTOR).wire_form


def _described(blocks: Sequence[LiveBlock]) -> str:
    shards = {block.key.split("/")[1] for block in blocks}
    size = size_text(sum(block.size for block in blocks))
    return f"what the writers made of it every half second: {len(blocks)} segments on {len(shards)} shards, {size}"
