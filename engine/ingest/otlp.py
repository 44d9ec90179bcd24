"""Convert OTLP profiles to pprof profiles, one per service.

Rules: ``docs/reference/formats/profile-api.md``, "OTLP". The index of a table entry becomes its id, because index 0 is
unset in OTLP and id 0 in pprof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.formats.pprof.pprof_model import (
    MAPPING_HAS_FUNCTIONS,
    Functions,
    Integers,
    Locations,
    Mappings,
    Profile,
    Samples,
)
from engine.formats.pprof.pprof_select import starts_of, with_used_strings, without_unreached
from engine.formats.proto import otlp_profiles_pb2 as otlp
from engine.ingest.labels import check_labels
from engine.ingest.model import NANOSECONDS_PER_SECOND, PushedProfile, PushLimits, Refused
from engine.ingest.otlp_request import REASON, parse_request
from engine.ingest.push import DecodedPush, checked_profile
from engine.ingest.segments.normalise import FRAMES_MAX
from engine.ingest.text_stacks import INT64_MAX

SERVICE = "service.name"
EXECUTABLE = "process.executable.name"
BUILD_ID = "process.executable.build_id.gnu"
WORK_MAX = 10_000_000
"""Maximum work of a request: dictionary rows, frames, labels and values, counted per use. Takes about a second."""
DURATION_DEFAULT_NS = 10 * NANOSECONDS_PER_SECOND
_CPU = ("cpu", "nanoseconds")


def decode_otlp(body: bytes, *, is_json: bool, limits: PushLimits, now_ns: int) -> DecodedPush:
    """Decode and validate an export request, each profile independently; it may have no profiles.

    Raises Refused if the request itself is invalid. ``now_ns`` is unix nanoseconds.
    """
    request = parse_request(body, is_json=is_json)
    tables = _Tables(request.dictionary)
    taken: list[PushedProfile] = []
    refused: list[Refused] = []
    for resource in request.resource_profiles:
        shared = _attributes(resource.resource.attributes)
        for scope in resource.scope_profiles:
            given = _attributes(scope.scope.attributes) | shared
            for profile in scope.profiles:
                try:
                    taken.extend(_profiles(profile, given, tables, limits, now_ns))
                except Refused as error:
                    refused.append(error)
    return DecodedPush(tuple(taken), tuple(refused))


def _profiles(
    profile: otlp.Profile, given: dict[str, str], tables: _Tables, limits: PushLimits, now_ns: int
) -> Iterator[PushedProfile]:
    """Yield the validated profiles of every service in one OTLP profile."""
    for service, samples in _by_service(profile, tables, _service_of(given)):
        tables.charge(tables.row_count + len(given))
        made = _profile(profile, samples, tables, now_ns)
        own = {"__name__": made.metric, "service_name": service, "__delta__": "false", "__otel__": "true"}
        labels = check_labels((given | own).items(), limits)
        yield checked_profile(made.profile, None, labels, limits, now_ns=now_ns)


@dataclass(frozen=True, slots=True)
class _Made:
    profile: Profile
    metric: str


class _Tables:
    """The dictionary as pprof tables, and its strings, extended by those of labels."""

    def __init__(self, dictionary: otlp.Dictionary) -> None:
        self.dictionary = dictionary
        self.strings = [string.encode() for string in dictionary.string_table] or [b""]
        self._refs = {string: ref for ref, string in reversed(list(enumerate(self.strings)))}
        self.attributes = [self._attribute(one) for one in dictionary.attribute_table]
        self.links = [self._link(one) for one in dictionary.link_table]
        self.functions = _functions(dictionary.function_table[1:])
        self.locations = _locations(dictionary.location_table[1:])
        self.mappings = _mappings(dictionary.mapping_table[1:], self)
        self.row_count = len(self.strings) + sum(
            len(table) for table in (dictionary.mapping_table, dictionary.location_table, dictionary.function_table)
        )
        self._work_left = WORK_MAX

    def charge(self, count: int) -> None:
        """Charge work to the request. Raises Refused if its limit is exceeded."""
        if count > self._work_left:
            raise Refused("samples_limit", "its profiles go through too many rows and frames: send several requests")
        self._work_left -= count

    def ref(self, text: bytes) -> int:
        if text not in self._refs:
            self._refs[text] = len(self.strings)
            self.strings.append(text)
        return self._refs[text]

    def _attribute(self, attribute: otlp.Attribute) -> tuple[str, str]:
        value = _text(attribute.value)
        return self.strings[attribute.key_strindex].decode(), "" if value is None else value

    def _link(self, link: otlp.Link) -> list[tuple[str, str]]:
        return [
            (name, value.hex()) for name, value in (("trace_id", link.trace_id), ("span_id", link.span_id)) if value
        ]

    def labels(self, sample: otlp.Sample) -> list[tuple[str, str]]:
        """Return the string labels of a sample: its attributes, then the ids of its link."""
        self.charge(1 + len(sample.attribute_indices))
        found = [self.attributes[index] for index in _inside(sample.attribute_indices, self.attributes, "attribute")]
        for index in _inside([sample.link_index], self.links, "link"):
            found.extend(self.links[index])
        return [(name, value) for name, value in found if name and value]


def _inside(indexes: Iterable[int], table: Sequence[object], kind: str) -> list[int]:
    """Return the indexes that are set. Raises Refused for one outside the table."""
    wanted = [index for index in indexes if index]
    for index in wanted:
        if not 0 < index < len(table):
            raise Refused(REASON, f"a sample names {kind} {index}, the dictionary has {len(table)}")
    return wanted


def _text(value: otlp.AnyValue) -> str | None:
    """Return a string or integer, or the only item of a list of these, as text."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind == "int_value":
        return str(value.int_value)
    if kind == "array_value" and len(value.array_value.values) == 1:
        only = value.array_value.values[0]
        return None if only.WhichOneof("value") == "array_value" else _text(only)
    return None


def _attributes(given: Iterable[otlp.KeyValue]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        text = _text(one.value)
        if text is not None:
            found.setdefault(one.key, text)
    return found


def _service_of(attributes: dict[str, str]) -> str:
    if attributes.get(SERVICE):
        return attributes[SERVICE]
    executable = attributes.get(EXECUTABLE)
    return f"unknown_service:{executable}" if executable else "unknown_service"


def _by_service(
    profile: otlp.Profile, tables: _Tables, default: str
) -> list[tuple[str, list[tuple[otlp.Sample, list[tuple[str, str]]]]]]:
    """Group the samples and their labels by ``service.name``, in order of appearance."""
    found: dict[str, list[tuple[otlp.Sample, list[tuple[str, str]]]]] = {}
    for sample in profile.samples:
        labels = tables.labels(sample)
        service = dict(labels).get(SERVICE) or default
        found.setdefault(service, []).append((sample, [one for one in labels if one[0] != SERVICE]))
    return list(found.items())


def _profile(
    profile: otlp.Profile,
    samples: Sequence[tuple[otlp.Sample, list[tuple[str, str]]]],
    tables: _Tables,
    now_ns: int,
) -> _Made:
    kind = _value_type(profile.sample_type, tables, "sample type")
    period_type = _value_type(profile.period_type, tables, "period type")
    scale = 1
    if kind == ("samples", "count") and period_type == _CPU:
        kind, scale = _CPU, profile.period
    columns = _samples(samples, tables, scale)
    made = Profile(
        strings=tables.strings,
        sample_types=[(tables.ref(kind[0].encode()), tables.ref(kind[1].encode()))],
        period_type=(tables.ref(period_type[0].encode()), tables.ref(period_type[1].encode())),
        period=profile.period,
        time_ns=_int64(profile.time_unix_nano) or now_ns,
        duration_ns=_int64(profile.duration_nano) or DURATION_DEFAULT_NS,
        samples=columns,
        mappings=tables.mappings,
        locations=tables.locations,
        functions=tables.functions,
    )
    return _Made(with_used_strings(without_unreached(made)), _metric(kind, period_type))


def _metric(kind: tuple[str, str], period_type: tuple[str, str]) -> str:
    if kind == _CPU and period_type == _CPU:
        return "process_cpu"
    return period_type[0] or kind[0]


def _value_type(value_type: otlp.ValueType, tables: _Tables, what: str) -> tuple[str, str]:
    names = []
    for ref in (value_type.type_strindex, value_type.unit_strindex):
        if not 0 <= ref < len(tables.strings):
            raise Refused(REASON, f"the {what} names string {ref}, the dictionary has {len(tables.strings)}")
        names.append(tables.strings[ref].decode())
    return names[0], names[1]


def _samples(samples: Sequence[tuple[otlp.Sample, list[tuple[str, str]]]], tables: _Tables, scale: int) -> Samples:
    stacks = tables.dictionary.stack_table
    frames: list[int] = []
    depths, values, label_counts = [], [], []
    keys: list[int] = []
    strings: list[int] = []
    for sample, labels in samples:
        chosen = _inside([sample.stack_index], stacks, "stack")
        depth = sum(len(stacks[one].location_indices) for one in chosen)
        tables.charge(depth + len(sample.values) + len(sample.timestamps_unix_nano))
        if len(frames) + depth > FRAMES_MAX:
            raise Refused("samples_limit", f"the stacks have more than {FRAMES_MAX} frames; send shorter profiles")
        own = [index for one in chosen for index in stacks[one].location_indices if index]
        frames.extend(own)
        depths.append(len(own))
        values.append(_value(sample, scale))
        label_counts.append(len(labels))
        keys.extend(tables.ref(name.encode()) for name, _ in labels)
        strings.extend(tables.ref(value.encode()) for _, value in labels)
    nothing = np.zeros(len(keys), np.int64)
    return Samples(
        location_starts=starts_of(np.array(depths, np.int64)),
        location_ids=np.array(frames, np.uint64),
        value_starts=np.arange(len(values) + 1, dtype=np.int64),
        values=np.array(values, np.int64),
        label_starts=starts_of(np.array(label_counts, np.int64)),
        label_keys=np.array(keys, np.int64),
        label_strings=np.array(strings, np.int64),
        label_numbers=nothing,
        label_units=nothing.copy(),
    )


def _value(sample: otlp.Sample, scale: int) -> int:
    value = (sum(sample.values) if sample.values else len(sample.timestamps_unix_nano)) * scale
    if not -INT64_MAX <= value <= INT64_MAX:
        raise Refused("malformed_profile", f"a value of {value} leaves 63 bits")
    return value


def _functions(table: Sequence[otlp.Function]) -> Functions:
    return Functions(
        ids=_numbered(table),
        names=_column(one.name_strindex for one in table),
        system_names=_column(one.system_name_strindex for one in table),
        filenames=_column(one.filename_strindex for one in table),
        start_lines=_column(one.start_line for one in table),
    )


def _locations(table: Sequence[otlp.Location]) -> Locations:
    own_lines = [[line for line in one.lines if line.function_index] for one in table]
    lines = [line for own in own_lines for line in own]
    return Locations(
        ids=_numbered(table),
        mapping_ids=np.array([one.mapping_index for one in table], np.uint64),
        addresses=np.array([one.address for one in table], np.uint64),
        folded=np.zeros(len(table), np.uint8),
        line_starts=starts_of(np.array(list(map(len, own_lines)), np.int64)),
        line_function_ids=np.array([line.function_index for line in lines], np.uint64),
        line_numbers=_column(line.line for line in lines),
    )


def _mappings(table: Sequence[otlp.Mapping], tables: _Tables) -> Mappings:
    has_functions = len(tables.functions) > 0
    return Mappings(
        ids=_numbered(table),
        memory_starts=np.array([one.memory_start for one in table], np.uint64),
        memory_limits=np.array([one.memory_limit for one in table], np.uint64),
        file_offsets=np.array([one.file_offset for one in table], np.uint64),
        filenames=_column(one.filename_strindex for one in table),
        build_ids=_column(tables.ref(_build_id(one, tables).encode()) for one in table),
        flags=np.full(len(table), MAPPING_HAS_FUNCTIONS if has_functions else 0, np.uint8),
    )


def _build_id(mapping: otlp.Mapping, tables: _Tables) -> str:
    for index in _inside(mapping.attribute_indices, tables.attributes, "attribute"):
        name, value = tables.attributes[index]
        if name == BUILD_ID:
            return value
    return ""


def _numbered(table: Sequence[object]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.arange(1, len(table) + 1, dtype=np.uint64)


def _column(values: Iterable[int]) -> Integers:
    return np.fromiter(values, np.int64)


def _int64(value: int) -> int:
    return value if value <= INT64_MAX else 0
