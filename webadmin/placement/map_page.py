"""The page of placement: ring, subrings and load as pictures, skew, and what a change of the fleet would move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.safestring import mark_safe

from engine.core.errors import LithifyError
from engine.placement.documents import decode_statistics
from engine.placement.load_balancing import skew
from engine.placement.model import DatasetKey, PlacementRules
from engine.placement.rate import format_rate
from engine.placement.ring import Ring
from engine.placement.statistics import DatasetStatistics, PlacementStatistics
from engine.placement.subrings import dataset_subring, key_hash
from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import outcome_sections
from webadmin.adminkit.sections import Facts, Notice, Picture, Section, Table
from webadmin.base.access.confinement import confined_tenants, may_see
from webadmin.base.database import dialect
from webadmin.placement.models import RulesHead
from webadmin.placement.pictures import PIECES_MAX, Stretch, heat_picture, ring_legend, ring_picture
from webadmin.placement.services.build_placement_rules import rules_of
from webadmin.placement.services.forecast_placement import FleetChange, what_if
from webadmin.placement.services.instances import current_ring

OLD_RULES_MS = 2 * 60_000
DATASETS_SHOWN = 25
NO_ZONE = "-"
PICTURE_WIDTHS = {"ring": 460, "heat": 520}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementNow:
    """The data of the page, read once."""

    ring: Ring
    rules: PlacementRules
    statistics: PlacementStatistics
    now_ms: int


def read_now() -> PlacementNow:
    """Read ring, rules and statistics."""
    head = RulesHead.objects.filter(id=1).defer("state").first() or RulesHead()
    data, rules = bytes(head.statistics), rules_of(head)
    statistics = decode_statistics(data) if data else PlacementStatistics(created_at_ms=0)
    return PlacementNow(
        ring=current_ring(),
        rules=replace(rules, datasets={key: rule for key, rule in rules.datasets.items() if may_see(key[0])}),
        statistics=replace(statistics, datasets=tuple(one for one in statistics.datasets if may_see(one.tenant))),
        now_ms=dialect.clock_ms(),
    )


@admin.site.admin_view
def placement_page(request: HttpRequest) -> HttpResponse:
    """Render how datasets are placed; ``tenant`` and ``dataset`` select one, ``ask`` predicts what would move."""
    now = read_now()
    heaviest = sorted(now.statistics.datasets, key=lambda one: (-one.usage(), one.tenant, one.dataset))
    chosen = _chosen(request, heaviest)
    form = {name: request.GET.get(name, "").strip() for name in ("add", "remove", "shards")}
    forecast, refused = _answer(form) if request.GET.get("ask") else ([], [])
    context = {
        **admin.site.each_context(request),
        "title": "Placement",
        "notices": _notices(now),
        "overview": [_facts(now)],
        "pictures": _pictures(now, chosen) if now.ring.shards else [],
        "tables": [_skew(now, heaviest)],
        "tenant": chosen[0] if chosen else "",
        "dataset": chosen[1] if chosen else "",
        "asked": form,
        "forecast": forecast,
        "refused": refused,
    }
    return TemplateResponse(request, "placement/map.html", context)


def _chosen(request: HttpRequest, heaviest: Sequence[DatasetStatistics]) -> DatasetKey | None:
    """Return the dataset in the request, otherwise the one that writes most."""
    tenant = request.GET.get("tenant", "").strip()
    if tenant and may_see(tenant):
        return (tenant, request.GET.get("dataset", "").strip())
    return (heaviest[0].tenant, heaviest[0].dataset) if heaviest else None


def _notices(now: PlacementNow) -> list[Notice]:
    notices = []
    if not now.ring.shards:
        notices.append(Notice(tone="warn", text="There is no ring: start a segment writer (manage.py writer)."))
    elif not any(instance.is_writable() for instance in now.ring.instances):
        notices.append(Notice(tone="bad", text="No segment writer accepts profiles: all are silent or leaving."))
    if not now.rules.version:
        text = "No rules yet: all datasets have the defaults of their tenant until beat and a control worker run."
        notices.append(Notice(tone="warn", text=text))
    elif now.now_ms - now.rules.created_at_ms > OLD_RULES_MS:
        age = show.duration_text(now.now_ms - now.rules.created_at_ms)
        notices.append(Notice(tone="warn", text=f"The rules are {age} old: is a control worker running?"))
    return notices


def _facts(now: PlacementNow) -> Facts:
    silent = sum(not instance.is_writable() for instance in now.ring.instances)
    instances = show.counted(len(now.ring.instances), "instance")
    loads = _loads(now.statistics)
    mean = sum(loads.values()) / now.ring.shards if now.ring.shards else 0
    return Facts(
        title="Status",
        rows=[
            ("Ring", f"version {now.ring.version}, {show.counted(now.ring.shards, 'shard')}"),
            ("Fleet", f"{instances}, {silent} of them silent or leaving" if silent else instances),
            ("Zones", ", ".join(now.ring.zones()) or "none"),
            ("Rules", f"version {now.rules.version}, {show.counted(len(now.rules.datasets), 'dataset')}"),
            ("Built", show.age(now.rules.created_at_ms or None, now.now_ms)),
            ("Write rate", format_rate(sum(loads.values()))),
            ("Busiest shard", _busiest(loads, mean)),
            (
                "Capped by tenant limits",
                show.counted(sum(r.is_capped() for r in now.rules.datasets.values()), "dataset"),
            ),
        ],
    )


def _busiest(loads: Counter[int], mean: float) -> str:
    if not loads or not mean:
        return show.NOTHING
    [(shard, load)] = loads.most_common(1)
    return f"shard {shard}: {format_rate(load)}, {load / mean:.1f} times the mean"


def _loads(statistics: PlacementStatistics) -> Counter[int]:
    """Return bytes/s by shard, of all datasets."""
    loads: Counter[int] = Counter()
    for found in statistics.datasets:
        for shard in found.shards:
            loads[shard.shard] += shard.usage
    return loads


def _pictures(now: PlacementNow, chosen: DatasetKey | None) -> list[Picture]:
    title, more, stretch = "Ring and shard map", "", None
    if chosen is not None:
        stretch = _stretch(now, chosen)
        rule = now.rules.rule(*chosen)
        title = f"Ring and shard map, with {chosen[0]}/{chosen[1]}"
        way = rule.load_balancing.name.lower().replace("_", " ")
        place = f"pinned to shards {', '.join(map(str, rule.shards))}" if rule.shards else "placed by hash"
        more = f"{show.counted(len(stretch.pinned) or stretch.dataset.size(), 'shard')}, {place}, picked by {way}."
    if now.ring.shards > PIECES_MAX:
        more = f"{more} Each piece stands for {now.ring.shards / PIECES_MAX:.0f} shards.".strip()
    # The pictures escape what they show.
    ring = mark_safe(ring_picture(now.ring, stretch))  # noqa: S308
    heat = mark_safe(heat_picture(now.ring, _loads(now.statistics)))  # noqa: S308
    return [
        Picture(
            title=title, picture=ring, width=PICTURE_WIDTHS["ring"], more=more, legend=ring_legend(now.ring, stretch)
        ),
        Picture(
            title="Write load per shard",
            picture=heat,
            width=PICTURE_WIDTHS["heat"],
            more="Bytes per second of all datasets and instances, decaying average with a half-life of 3 minutes.",
        ),
    ]


def _stretch(now: PlacementNow, chosen: DatasetKey) -> Stretch:
    rule, shards = now.rules.rule(*chosen), now.ring.shards
    keys = key_hash(chosen[0]), key_hash(chosen[1])
    subring = dataset_subring(shards, *keys, rule.tenant_shards, rule.dataset_shards)
    pinned = [shard - 1 for shard in rule.shards if shard <= shards]
    return Stretch(tenant=subring.parent(), dataset=subring, pinned=pinned)


def _skew(now: PlacementNow, heaviest: Sequence[DatasetStatistics]) -> Table:
    left = len(heaviest) - DATASETS_SHOWN
    rows = []
    for found in heaviest[:DATASETS_SHOWN]:
        rule, unevenness = now.rules.rule(found.tenant, found.dataset), skew(found)
        way = rule.load_balancing.name.lower().replace("_", " ")
        rows.append(
            (
                show.name(found.tenant),
                show.link(_address(found), show.name(found.dataset or "(no name)")),
                format_rate(found.usage()),
                f"{len({shard.shard for shard in found.shards})} of {len(rule.shards) or max(1, rule.dataset_shards)}",
                show.badge(f"{unevenness:.2f}", "warn" if unevenness >= 0.5 else "quiet", "deviation over mean"),
                show.badge("pinned", "busy") if rule.shards else way,
            )
        )
    return Table(
        title="Datasets by write rate, with skew",
        headers=("Tenant", "Dataset", "Write rate", "Shards in use", "Skew", "Load balancing"),
        rows=rows,
        empty="No recent writes.",
        more=f"{show.counted(left, 'more dataset')} not shown." if left > 0 else "",
    )


def _address(found: DatasetStatistics) -> str:
    return f"?{urlencode({'tenant': found.tenant, 'dataset': found.dataset})}"


def _answer(form: dict[str, str]) -> tuple[list[Section], list[Notice]]:
    """Return what would move, or why that cannot be computed."""
    if confined_tenants() is not None:
        text = "The forecast of a fleet change covers all tenants and requires permission for all of them."
        return [], [Notice(tone="warn", text=text)]
    shards = form["shards"]
    if shards and not (shards.isascii() and shards.isdigit()):
        return [], [Notice(tone="warn", text=f"Number of shards: expected a number, got {shards!r}.")]
    change = FleetChange(
        add=[zone if zone != NO_ZONE else "" for zone in _names(form["add"])],
        remove=_names(form["remove"]),
        shards=int(shards) if shards else None,
    )
    try:
        preview: dict[str, Any] = what_if(change).to_json()
    except LithifyError as error:
        return [], [Notice(tone="warn", text=f"{str(error)[:1].upper()}{str(error)[1:]}.")]
    return list(outcome_sections({name: value for name, value in preview.items() if value != []})), []


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
