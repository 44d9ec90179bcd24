"""``kill -9`` while branches of catalogs are folded: whichever process dies, visible data does not change, and the
branch is compacted in the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.faults.stack import CONTROLS, NODES, SETTLE_SECONDS, WEBS, FaultStack
from tests.faults.steps import Matches, Step
from tests.faults.traps import Moment
from tests.processes import wait_until

SCENE = """
import django, json, sys
django.setup()
from engine.formats.ranges.object_entry import ObjectEntry
from webadmin.lanes.catalog.lane_models import BranchWatch
from webadmin.lanes.catalog.services.branches import find_branch
from webadmin.lanes.catalog.services.commit_branch import commit_branch
from webadmin.lanes.catalog.services.commits import NewCommit
from webadmin.lanes.catalog.services.repositories import NewRepository, create_repository
from webadmin.lanes.catalog.services.write_objects import delete_entries, put_entry
from webadmin.base.actions.action import ActionContext
context = ActionContext(actor="test")
said = NewCommit(committer="test", message="m")
made = {}
for name in sys.argv[1:]:
    new = NewRepository(tenant="acme", name=name, storage_namespace="s3://lake/" + name)
    repository = create_repository(new, context=context)
    for number in range(6):
        value = ObjectEntry(address=f"data/{number}", size=1, checksum=str(number), written_at=0.0)
        put_entry(repository, "main", b"key-%d" % number, value)
    commit_branch(repository, "main", said, context=context)
    delete_entries(repository, "main", [b"key-1", b"key-4"])
    branch = find_branch(repository, "main")
    BranchWatch.objects.get_or_create(branch=branch)  # unless the sensor came first
    made[name] = [repository.pk, branch.pk]
print(json.dumps(made))
"""
LOOK = """
import django, json, sys
django.setup()
from webadmin.lanes.catalog.services.read_objects import list_entries
from webadmin.lanes.catalog.services.repositories import find_repository
found = {name: list_entries(find_repository("acme", name), "main").items for name in sys.argv[1:]}
print(json.dumps({name: [item.key.decode() for item in items] for name, items in found.items()}))
"""
VISIBLE = ["key-0", "key-2", "key-3", "key-5"]


def put(folder: str) -> Matches:
    return lambda repository: lambda request: request.is_about("PUT", f"/catalog/acme/{repository}/meta/{folder}/")


def published(repository: int) -> Callable[[Any], bool]:
    return lambda statement: statement.commits(f"-R{repository}", "published")


STEPS = (
    Step(name="run", on="store", match=put("runs"), moment=Moment.BEFORE, victims=CONTROLS),
    Step(name="range", on="store", match=put("ranges"), moment=Moment.AFTER, victims=NODES),
    Step(name="metarange", on="store", match=put("metaranges"), moment=Moment.BEFORE, victims=NODES),
    Step(name="publication", on="database", match=published, moment=Moment.AFTER, victims=WEBS),
)


def test_a_kill_during_a_compaction_of_branches_changes_nothing_visible(fault_stack: FaultStack) -> None:
    names = [step.name for step in STEPS]
    made: dict[str, tuple[int, int]] = json.loads(fault_stack.python("-c", SCENE, *names))
    for step in STEPS:
        kill_at(fault_stack, step, *made[step.name])
    assert json.loads(fault_stack.python("-c", LOOK, *names)) == dict.fromkeys(names, VISIBLE)
    assert fault_stack.rows("SELECT count(*) FROM catalog_build") == [(0,)]


def kill_at(stack: FaultStack, step: Step, repository: int, branch: int) -> None:
    trap, is_set = step.set_trap(stack, repository)
    with is_set:
        order(stack, branch)
        stack.kill_client(trap, *step.victims)
    if step.victims == CONTROLS:
        assert outcomes(stack, branch) == [("open",)]
        stack.rows("UPDATE catalog_compaction SET begun_ms = 0 WHERE branch_id = %s RETURNING id", branch)
        wait_until(lambda: outcomes(stack, branch) == [("failed",)], "the dead one is noticed", SETTLE_SECONDS)
        order(stack, branch)

    def is_folded() -> bool:
        return ("published",) in outcomes(stack, branch)

    try:
        wait_until(is_folded, f"{step.name}: the branch is folded", SETTLE_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{outcomes(stack, branch)}\n{stack.story()}") from None
    [(snapshot,)] = stack.rows("SELECT snapshot FROM catalog_branch WHERE id = %s", branch)
    assert snapshot is not None
    sealed = "SELECT count(*) FROM catalog_branchtoken WHERE branch_id = %s AND state = 'sealed'"
    assert stack.rows(sealed, branch) == [(0,)]


def order(stack: FaultStack, branch: int) -> None:
    """Want the branch folded now, as an operator does."""
    wanted = "UPDATE catalog_branchwatch SET ordered_by = 'test', ordered_why = 'now' WHERE branch_id = %s RETURNING 1"
    stack.rows(wanted, branch)


def outcomes(stack: FaultStack, branch: int) -> list[tuple[Any, ...]]:
    """What became of the branch's compactions, in order."""
    return stack.rows("SELECT state FROM catalog_compaction WHERE branch_id = %s ORDER BY id", branch)
