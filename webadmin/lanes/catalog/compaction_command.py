"""Compaction and garbage collection actions of ``manage.py catalog`` and their output."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from rich.console import Console
from rich.table import Table

from engine.lanes.catalog.plan.sensor import Held
from webadmin.adminkit.formatting import GAP, counted, size_text
from webadmin.base.actions.action import ActionContext
from webadmin.base.actions.command import add_options, option_values, run_action
from webadmin.lanes.catalog.actions import COLLECT, COMPACT_NOW, RESTORE
from webadmin.lanes.catalog.branch_loads import watched_branches
from webadmin.lanes.catalog.errors import RepositoryMissing
from webadmin.lanes.catalog.explain import weigh
from webadmin.lanes.catalog.models import Repository
from webadmin.lanes.catalog.repository_sections import deleted_words, tombstones_text
from webadmin.lanes.catalog.services.branches import find_branch
from webadmin.lanes.catalog.services.compaction.compact_branch import NOTHING_STAGED, begin_compaction
from webadmin.lanes.catalog.services.repositories import find_repository
from webadmin.lanes.catalog.states import CompactionState
from webadmin.lanes.catalog.status import active_repositories, deleted_repositories, statuses

TENANTS_NAMED_MAX = 5


def add_actions(actions: Any) -> None:
    """Add ``status``, ``compact``, ``gc`` and ``restore`` to the command's actions."""
    status: ArgumentParser = actions.add_parser("status", help="what makes branches slow, and what the sensor says")
    status.add_argument("--tenant", default="", help="of one tenant only")
    compact: ArgumentParser = actions.add_parser("compact", help="fold a branch now, whatever its thresholds are")
    for field in COMPACT_NOW.targets:
        field.add_option(compact, positional=("branch",))
    collect: ArgumentParser = actions.add_parser("gc", help="delete what nothing reaches, after its grace")
    add_options(collect, COLLECT.targets)
    restore: ArgumentParser = actions.add_parser("restore", help=RESTORE.about)
    add_options(restore, RESTORE.targets)
    for each in (status, compact, collect, restore):
        each.add_argument("--json", action="store_true", dest="as_json", help="JSON instead of words")


def show_status(options: dict[str, Any], actor: str, out: Any) -> None:
    """Print every branch with staged entries."""
    repositories = [row for row in active_repositories() if options["tenant"] in ("", row.tenant)]
    deleted = [row for row in deleted_repositories() if options["tenant"] in ("", row.tenant)]
    if options["tenant"] and not repositories and not deleted:
        raise RepositoryMissing(f"{options['tenant']} has no repository")
    own = [one for one in watched_branches() if options["tenant"] in ("", one.branch.repository.tenant)]
    weighed = [(one, weigh(one)) for one in own]
    if options["as_json"]:
        rows = [
            {
                "tenant": one.branch.repository.tenant,
                "repository": one.branch.repository.name,
                "branch": one.branch.name,
                "sealed_tokens": one.load.sealed_tokens,
                "sealed_rows": one.load.sealed_rows,
                "tombstones": one.load.tombstones,
                "fires": decision.fires,
                "says": decision.held.value,
                "why": decision.reason,
            }
            for one, decision in weighed
        ]
        gone = [
            {"tenant": row.tenant, "repository": row.name, "id": row.pk, "deleted_ms": row.deleted_ms}
            for row in deleted
        ]
        out.write(json.dumps({"branches": rows, "deleted_repositories": gone}, indent=2))
        return
    table = Table("repository", "branch", "sealed tokens", "rows", "tombstones", "the sensor says")
    for one, decision in weighed:
        why = decision.reason if decision.held is not Held.FIRES else f"fires: {decision.reason}"
        tombstones = tombstones_text(one.load.tombstones).replace(GAP, " ")
        counts = (one.load.sealed_tokens, one.load.sealed_rows, tombstones)
        table.add_row(str(one.branch.repository), one.branch.name, *map(str, counts), why)
    if weighed:
        Console(file=out, width=180, soft_wrap=True).print(table)
    else:
        out.write("nothing is staged on any branch")
    now = statuses(repositories)
    condemned = sum(now[row.pk].orphans for row in repositories)
    words = (counted(len(repositories), "repository", "repositories"), counted(condemned, "condemned file"))
    out.write(", ".join(words).replace(GAP, " "))
    for row in deleted:
        out.write(f"{row} (id {row.pk}): {deleted_words(row)}".replace(GAP, " "))


def compact_now(options: dict[str, Any], actor: str, out: Any) -> None:
    """Seal a branch and create the job that compacts it."""
    values = option_values(COMPACT_NOW.targets, options)
    branch = find_branch(_repository(values), values["branch"])
    context = ActionContext(actor=actor, why="compacted by command")
    done = begin_compaction(branch, cause=context.why, context=context, is_ordered=True)
    data = {"state": done.state, "job": done.job.name if done.job else "", "rows": done.row_count}
    text = f"{branch.name}: {done.get_state_display()}" + (f", job {done.job.name}" if done.job else "")
    out.write(
        json.dumps(data) if options["as_json"] else f"{text}{f': {done.ended_because}' * bool(done.ended_because)}"
    )
    if done.state not in (CompactionState.OPEN, CompactionState.PUBLISHED) and done.ended_because != NOTHING_STAGED:
        raise SystemExit(1)


def collect(options: dict[str, Any], actor: str, out: Any) -> None:
    """Delete unreachable files and objects, or print them in a dry run."""
    _repository(option_values(COLLECT.targets, options))
    done = run_action(COLLECT, options)
    if options["as_json"]:
        out.write(json.dumps(done, indent=2))
        return
    verb = "would be deleted" if options["dry_run"] else "deleted"
    out.write(
        f"{done['files_seen']} files listed: {done['files_condemned']} condemned, {done['files_deleted']} {verb}; "
        f"{done['objects_seen']} objects: {done['objects_condemned']} condemned, {done['objects_deleted']} {verb}; "
        f"{done['rows_deleted']} rows; {size_text(done['bytes_deleted'])}"
    )
    for name in done["names"]:
        out.write(f"  {name}")


def restore(options: dict[str, Any], actor: str, out: Any) -> None:
    """Restore a deleted repository; a dry run prints whether that is possible."""
    done = run_action(RESTORE, options)
    verb = "can be restored" if options["dry_run"] else "restored"
    restored = {"repository": done["changed"][0], "id": done["id"], "restored": not options["dry_run"]}
    out.write(json.dumps(restored) if options["as_json"] else f"{restored['repository']} (id {done['id']}): {verb}")


def _repository(values: dict[str, Any]) -> Repository:
    """Return the selected repository. Raises RepositoryMissing, naming the tenants that have one of this name."""
    try:
        return find_repository(values["tenant"], values["repository"])
    except RepositoryMissing as error:
        tenants = [row.tenant for row in active_repositories() if row.name == values["repository"]][:TENANTS_NAMED_MAX]
        if not tenants:
            raise
        have = "has" if len(tenants) == 1 else "have"
        raise RepositoryMissing(f"{error}, but {', '.join(tenants)} {have}: name it with --tenant") from error


ACTIONS = {"status": show_status, "compact": compact_now, "gc": collect, "restore": restore}
