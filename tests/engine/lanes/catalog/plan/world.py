"""A branch whose operations run step by step, in any order, beside a dictionary of what must be visible.

Every operation is a generator that stops between two looks at what others change. Rows of retired tokens are swept
without any grace, so that nothing is right by luck. Content is real: ranges, overlays, diffs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from engine.formats.ranges.metarange import Metarange
from engine.formats.ranges.model import prefix_end
from engine.lanes.catalog.apply import apply_layers
from engine.lanes.catalog.diff import diff_states, diff_uncommitted, reset_rows
from engine.lanes.catalog.overlay import LayerInterval, LayerRow, Overlay
from engine.lanes.catalog.plan.branch import (
    BaseVersion,
    BranchRecord,
    BranchUpdate,
    base_version_of,
    insert_token,
    is_write_valid,
    move_head,
    publish_commit,
    publish_snapshot,
    reset,
    seal,
    write_ticket,
)
from engine.lanes.catalog.state_reader import StateReader
from engine.lanes.catalog.view import View
from tests.engine.lanes.catalog.factories import SMALL, layer, new_files, row, state, values_of

Steps = Generator[None, None, object]
Value = str | None
KEYS = (b"a", b"ab", b"b", b"ba", b"c")
TRIES = 3


@dataclass(frozen=True)
class Rows:
    """The rows of some tokens, the newest first, as they are while they are read."""

    held: Mapping[str, Mapping[bytes, Value]]
    tokens: Sequence[str]

    def of_key(self, key: bytes) -> list[LayerRow]:
        return [each for each in self.scan(key, key + b"\0") if each.key == key]

    def scan(self, start: bytes, end: bytes | None) -> Iterator[LayerRow]:
        found = [
            LayerRow(key, number, 0, *row(key, value, token)[1:])
            for number, token in enumerate(self.tokens)
            for key, value in self.held.get(token, {}).items()
            if key >= start and (end is None or key < end)
        ]
        return iter(sorted(found))

    def intervals(self) -> list[LayerInterval]:
        return []


@dataclass
class Running:
    """An operation under way: on which keys, what it would make of each, and what to do when it is done."""

    name: str
    steps: Steps
    keys: frozenset[bytes] = frozenset()
    done: Callable[[object], None] = lambda result: None


@dataclass
class World:
    """``allowed`` holds what each key may show; one value where nothing is under way.

    ``checks_epoch`` and ``checks_basis`` switch off parts of the protocol, to see what they are for.
    """

    checks_epoch: bool = True
    checks_basis: bool = True
    believes_tombstones: bool = False
    running: list[Running] = field(default_factory=list)
    rows: defaultdict[str, dict[bytes, Value]] = field(default_factory=lambda: defaultdict(dict))
    retired: set[str] = field(default_factory=set)
    allowed: dict[bytes, set[Value]] = field(default_factory=lambda: {key: {None} for key in KEYS})
    versions: defaultdict[bytes, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        self.numbers = count()
        self.files = new_files()
        self.commits: dict[str, Metarange] = {"root": state(self.files, {})}
        self.branch = BranchRecord(uid=self.name("branch"), head="root", staging=self.name("token"))

    # What is there.

    def name(self, kind: str) -> str:
        return f"{kind}-{next(self.numbers)}"

    def reader(self, metarange: Metarange) -> StateReader:
        return StateReader(self.files, metarange)

    def base(self, base_version: BaseVersion | BranchRecord) -> Metarange:
        return (
            self.files.read_metarange(base_version.snapshot)
            if base_version.snapshot
            else self.commits[base_version.head]
        )

    def overlay(self, tokens: Sequence[str]) -> Overlay:
        return Overlay(Rows(self.rows, tokens))

    def committed(self) -> dict[bytes, str]:
        return values_of(self.files, self.commits[self.branch.head])

    def visible(self) -> dict[bytes, str]:
        view = View(self.reader(self.base(self.branch)), self.overlay(self.branch.tokens))
        return {item.key: item.identity.decode() for item in view.list_page().items}  # type: ignore[union-attr]

    # Operations, step by step.

    def put(self, key: bytes, value: str) -> Steps:
        while True:
            ticket = write_ticket(self.branch)
            yield
            self.rows[ticket.staging][key] = value
            yield
            if is_write_valid(ticket, self.branch, decides=False):
                return value

    def delete(self, key: bytes) -> Steps:
        """Write a tombstone unless nothing was ever known of the key.

        A tombstone that is found in a sealed token says nothing: a writer that was late may have put it there behind
        the back of a build that has read the token already.
        """
        while True:
            branch, ticket = self.branch, write_ticket(self.branch)
            yield
            if key in self.rows[branch.staging]:
                self.rows[branch.staging][key] = None
            else:
                found = self.reader(self.base(branch)).get(key) is not None
                yield
                for token in branch.sealed if not found else ():
                    if key in self.rows[token]:
                        found = not self.believes_tombstones or self.rows[token][key] is not None
                        break
                    yield
                if found:
                    self.rows[branch.staging][key] = None
            yield
            if is_write_valid(ticket, self.branch, decides=self.checks_epoch):
                return None

    def reset_key(self, key: bytes) -> Steps:
        while True:
            branch, ticket = self.branch, write_ticket(self.branch)
            yield
            entry = self.reader(self.commits[branch.head]).get(key)
            value = entry.identity.decode() if entry else None
            yield
            self.rows[branch.staging][key] = value
            yield
            if is_write_valid(ticket, self.branch, decides=self.checks_epoch):
                return value

    def get(self, key: bytes) -> Steps:
        while True:
            branch = self.branch
            yield
            value: Value = None
            for token in branch.tokens:
                if key in self.rows[token]:
                    value = self.rows[token][key]
                    break
                yield
            else:
                entry = self.reader(self.base(branch)).get(key)
                value = entry.identity.decode() if entry else None
            yield
            if not self.checks_epoch or self.branch.epoch == branch.epoch:
                return value

    def compact(self) -> Steps:
        self.branch = seal(self.branch, self.name("token"))
        base_version = self.base_version()
        yield
        made = yield from self.build(base_version)
        is_clean = not any(diff_states(self.reader(self.commits[base_version.head]), self.reader(made)))
        base_version = base_version if self.checks_basis else self.base_version()
        return self.publish(publish_snapshot(self.branch, base_version, made.id, equals_head=is_clean))

    def commit(self) -> Steps:
        self.branch = seal(self.branch, self.name("token"))
        for _ in range(TRIES):
            base_version = self.base_version()
            yield
            made = yield from self.build(base_version)
            if not any(diff_states(self.reader(self.commits[base_version.head]), self.reader(made))):
                # No changes: what the layers hold is nothing against the commit, so they can go.
                moved = publish_snapshot(self.branch, base_version, made.id, equals_head=True)
                head = base_version.head
            else:
                head = self.name("commit")
                self.commits[head] = made
                moved = publish_commit(self.branch, base_version, head)
            if self.publish(moved):
                return head
            yield
        return None

    def merge(self, values: Mapping[bytes, str]) -> Steps:
        """Move the head to a commit in which these keys have these values, if nothing is uncommitted."""
        self.branch = seal(self.branch, self.name("token"))
        base_version = self.base_version()
        yield
        committed = self.reader(self.commits[base_version.head])
        snapshot = self.reader(self.base(base_version)) if base_version.snapshot else None
        is_clean = not any(diff_uncommitted(self.overlay(base_version.sealed), committed, snapshot))
        yield
        head = self.name("commit")
        self.commits[head] = apply_layers(self.files, committed.metarange, [layer(values)], rules=SMALL).metarange
        yield
        return self.publish(move_head(self.branch, base_version, head, is_clean=is_clean))

    def reset_prefix(self, prefix: bytes) -> Steps:
        self.branch = seal(self.branch, self.name("token"))
        base_version = self.base_version()
        yield
        committed = self.reader(self.commits[base_version.head])
        snapshot = self.reader(self.base(base_version)) if base_version.snapshot else None
        bounds = (prefix, prefix_end(prefix))
        changes = list(diff_uncommitted(self.overlay(base_version.sealed), committed, snapshot, *bounds))
        yield
        token = self.name("token")
        self.rows[token] = {key: identity.decode() or None for key, identity, _ in reset_rows(changes)}
        yield
        return self.publish(insert_token(self.branch, base_version, token))

    def base_version(self) -> BaseVersion:
        return base_version_of(self.branch)

    def build(self, base_version: BaseVersion) -> Generator[None, None, Metarange]:
        """Read the tokens one by one, then write the state."""
        layers = []
        for token in base_version.sealed:
            layers.append(layer(dict(self.rows[token]), address=token))
            yield
        made = apply_layers(self.files, self.base(base_version), layers, rules=SMALL).metarange
        yield
        return made

    def publish(self, moved: BranchUpdate | object) -> bool:
        if not isinstance(moved, BranchUpdate):
            return False
        assert moved.branch.epoch > self.branch.epoch
        self.branch = moved.branch
        self.retired |= set(moved.retired)
        return True

    # What users and the machine do.

    def is_busy(self, keys: Iterable[bytes]) -> bool:
        return any(each.keys & set(keys) for each in self.running)

    def begin(self, running: Running) -> None:
        for key in running.keys:
            self.versions[key] += 1
        self.running.append(running)

    def begin_write(self, name: str, key: bytes, steps: Steps, value: Value) -> None:
        if self.is_busy([key]):
            return
        self.allowed[key].add(value)

        def done(result: object) -> None:
            self.allowed[key] = {result}  # type: ignore[arg-type]

        self.begin(Running(name, steps, frozenset([key]), done))

    def begin_put(self, key: bytes, value: str) -> None:
        self.begin_write("put", key, self.put(key, value), value)

    def begin_delete(self, key: bytes) -> None:
        self.begin_write("delete", key, self.delete(key), None)

    def begin_reset_key(self, key: bytes) -> None:
        self.begin_write("reset key", key, self.reset_key(key), self.committed().get(key))

    def begin_reset_prefix(self, prefix: bytes) -> None:
        keys = frozenset(key for key in KEYS if key.startswith(prefix))
        if self.is_busy(keys) or any(each.name in ("merge", "commit") for each in self.running):
            return
        committed = self.committed()
        for key in keys:
            self.allowed[key].add(committed.get(key))

        def done(result: object) -> None:
            for key in keys if result else ():
                self.allowed[key] = {committed.get(key)}

        self.begin(Running("reset prefix", self.reset_prefix(prefix), keys, done))

    def begin_get(self, key: bytes) -> None:
        before, version = set(self.allowed[key]), self.versions[key]

        def done(result: object) -> None:
            if self.versions[key] == version and len(before) == 1 and not self.is_busy([key]):
                assert result in before, f"{key!r} reads as {result}, it is {before}"

        self.running.append(Running("get", self.get(key), done=done))

    def begin_compact(self) -> None:
        self.running.append(Running("compact", self.compact()))

    def begin_commit(self) -> None:
        if any(each.name == "reset prefix" for each in self.running):
            return
        uid = self.branch.uid
        acked = {key: next(iter(values)) for key, values in self.allowed.items() if len(values) == 1}
        versions = dict(self.versions)
        quiet = [key for key in acked if not self.is_busy([key])]

        def done(head: object) -> None:
            if head is None or self.branch.uid != uid or self.branch.head != head:
                return
            content = values_of(self.files, self.commits[str(head)])
            for key in quiet:
                if self.versions[key] == versions.get(key, 0):
                    assert content.get(key) == acked[key], f"{key!r} was committed as {content.get(key)}"

        self.running.append(Running("commit", self.commit(), done=done))

    def begin_merge(self, values: Mapping[bytes, str]) -> None:
        keys = frozenset(values)
        if self.is_busy(keys) or any(each.name == "reset prefix" for each in self.running):
            return

        def done(result: object) -> None:
            for key, value in values.items() if result else ():
                self.allowed[key] = {value}

        for key, value in values.items():
            self.allowed[key].add(value)
        self.begin(Running("merge", self.merge(values), keys, done))

    def reset_all(self) -> None:
        """Drop everything uncommitted, in one step."""
        self.publish(reset(self.branch, self.name("token")))
        self.back_to_commit()

    def recreate(self) -> None:
        """Delete the branch and make another of its name at the same head."""
        self.retired |= set(self.branch.tokens)
        head = self.branch.head
        self.branch = replace(
            BranchRecord(uid=self.name("branch"), head=head, staging=self.name("token")),
            epoch=self.branch.epoch + 1,
        )
        self.back_to_commit()

    def back_to_commit(self) -> None:
        committed = self.committed()
        for key in KEYS:
            self.versions[key] += 1
            if self.is_busy([key]):
                self.allowed[key].add(committed.get(key))
            else:
                self.allowed[key] = {committed.get(key)}

    def sweep(self) -> None:
        """Delete the rows of all retired tokens, at once."""
        for token in self.retired:
            self.rows.pop(token, None)
        self.retired.clear()

    def advance(self, number: int) -> None:
        """Let one operation take its next step."""
        if not self.running:
            return
        running = self.running[number % len(self.running)]
        try:
            next(running.steps)
        except StopIteration as stop:
            self.running.remove(running)
            for key in running.keys:
                self.versions[key] += 1
            running.done(stop.value)

    def finish(self, number: int) -> None:
        """Let one operation run to its end."""
        running = self.running[number % len(self.running)] if self.running else None
        while running is not None and any(each is running for each in self.running):
            self.advance(next(i for i, each in enumerate(self.running) if each is running))

    def crash(self, number: int) -> None:
        """Stop an operation where it is; what it wrote stays."""
        if self.running:
            running = self.running.pop(number % len(self.running))
            for key in running.keys:
                self.versions[key] += 1

    def finish_all(self) -> None:
        while self.running:
            self.finish(0)

    # What must hold at every moment.

    def check(self) -> None:
        visible, committed = self.visible(), self.committed()
        for each in self.running:
            if each.name == "reset key":
                self.allowed[next(iter(each.keys))].add(committed.get(next(iter(each.keys))))
        for key in KEYS:
            assert visible.get(key) in self.allowed[key], f"{key!r} shows {visible.get(key)}, not {self.allowed[key]}"
        self.check_diff(visible, committed)
        base = self.base(self.branch)
        assert base.checked().rows == len(values_of(self.files, base))

    def check_diff(self, visible: Mapping[bytes, str], committed: Mapping[bytes, str]) -> None:
        """The uncommitted diff is that of the two states, with or without a snapshot."""
        snapshot = self.reader(self.base(self.branch)) if self.branch.snapshot else None
        told = diff_uncommitted(self.overlay(self.branch.tokens), self.reader(self.commits[self.branch.head]), snapshot)
        found = {each.key: each.after.identity.decode() if each.after else None for each in told}
        keys = sorted(key for key in visible.keys() | committed.keys() if visible.get(key) != committed.get(key))
        assert list(found.items()) == [(key, visible.get(key)) for key in keys]
