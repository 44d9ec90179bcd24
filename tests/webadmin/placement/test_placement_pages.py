"""The pages of placement: pictures, load, skew, history, orders with a preview; and what they cost."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from engine.placement.model import Instance as Writer
from engine.placement.ring import change_ring
from engine.placement.subrings import dataset_subring, key_hash
from tests.webadmin.placement.conftest import KIB, UNIT, Placement
from webadmin.base.actions.action import ActionContext
from webadmin.placement.models import (
    Instance,
    PlacementChange,
    PlacementLimit,
    PlacementOverride,
    RingChange,
    RuleChange,
    RulesVersion,
)
from webadmin.placement.pictures import PIECES_MAX, Stretch, heat_picture, pieces, ring_picture
from webadmin.placement.services.decide_placement import change_limits, change_override
from webadmin.placement.services.instances import Registration, current_ring, register_instance

PAGE = "/admin/placement-map/"
MODELS = (Instance, PlacementChange, PlacementLimit, PlacementOverride, RingChange, RuleChange, RulesVersion)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def operator(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create(username="operator", is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def filled(placement: Placement) -> Placement:
    """Writers in two zones, datasets of which one is skewed, limits and a pin."""
    context = ActionContext(actor="operator", why="a test")
    hot = [("acme", "web", 3, 8 * UNIT), ("acme", "web", 4, UNIT // 4), ("acme", "web", 5, UNIT // 4)]
    placement.run(30, *hot, ("beta", "<b>api</b>", 7, UNIT))
    for number in range(1, 7):
        register_instance(Registration(name=f"writer-{number}", address="http://h:1", zone="ab"[number % 2]))
    change_limits(tenant="acme", values={"dataset_shards_min": 2, "unit_bytes": 64 * KIB}, context=context)
    change_override(tenant="acme", dataset="pinned", values={"shards": [2, 1]}, context=context)
    placement.round(after_s=0)
    return placement


def circles(picture: str) -> list[str]:
    """Return the titles of what is drawn, after reading the whole as XML."""
    return [title.text or "" for title in ElementTree.fromstring(picture).iter(f"{SVG}title")]


def ring_of(count: int, shards: int | None = None):
    return change_ring(current_ring(), [Writer(id=f"<w{n}>") for n in range(count)], shards=shards)


def test_the_ring_shows_every_shard_with_its_host_and_the_subrings(db: None) -> None:
    ring = ring_of(3, 24)
    subring = dataset_subring(24, key_hash("acme"), key_hash("web"), 8, 4)
    titles = circles(ring_picture(ring, Stretch(tenant=subring.parent(), dataset=subring)))
    assert titles[:24] == [f"shard {n + 1}: {owner}" for n, owner in enumerate(ring.tables[""])]
    assert titles[24:32] == [f"shard {position + 1}" for position in subring.parent().positions()]
    assert titles[32:] == [f"shard {position + 1}" for position in subring.positions()]


def test_the_heat_of_a_shard_is_its_share_of_the_busiest(db: None) -> None:
    ring = ring_of(2, 8)
    picture = ElementTree.fromstring(heat_picture(ring, {1: 1 << 20, 2: 512 << 10}))
    cells = [group.find(f"{SVG}rect").get("fill-opacity") for group in picture.iter(f"{SVG}g")]
    assert cells == ["1.000", "0.530", *["0.060"] * 6]
    assert circles(heat_picture(ring, {1: 1 << 20}))[0].startswith("shard 1: 1.0 MiB/s, <w")


@pytest.mark.parametrize("shards", [1, 2, 511, 512, 513, 65_536])
def test_a_ring_of_any_size_is_drawn_in_few_pieces_that_leave_nothing_out(shards: int) -> None:
    drawn = pieces(shards)
    assert len(drawn) == min(shards, PIECES_MAX)
    assert [first for first, _ in drawn] == [0, *(last for _, last in drawn[:-1])]
    assert drawn[-1][1] == shards


@pytest.mark.parametrize("shards", [1, 65_536])
def test_the_smallest_and_the_largest_ring_can_be_drawn(db: None, shards: int) -> None:
    ring = ring_of(1, shards)
    subring = dataset_subring(shards, 5, 6, 0, shards)
    picture = ring_picture(ring, Stretch(tenant=subring.parent(), dataset=subring))
    assert len(circles(picture)) <= 3 * PIECES_MAX
    assert circles(heat_picture(ring, {shards: 7}))


def test_the_page_shows_what_is_missing_before_the_first_push(operator: Client) -> None:
    text = operator.get(PAGE).content.decode()
    assert "There is no ring" in text
    assert "No rules yet" in text


def test_the_page_shows_ring_load_and_skew(operator: Client, filled: Placement) -> None:
    text = operator.get(PAGE).content.decode()
    assert text.count("<svg xmlns") == 2
    assert "with acme/web" in text, "the dataset that writes most is shown until another is asked for"
    assert "Busiest shard" in text
    assert "shard 3:" in text
    assert "<b>api</b>" not in text, "names are escaped"


def test_the_page_finds_a_dataset_on_the_ring(operator: Client, filled: Placement) -> None:
    text = operator.get(PAGE, {"tenant": "acme", "dataset": "pinned"}).content.decode()
    assert "pinned to shards 1, 2" in text
    text = operator.get(PAGE, {"tenant": "unknown", "dataset": "x"}).content.decode()
    assert "placed by hash" in text


def test_old_rules_and_a_silent_fleet_are_shown(operator: Client, filled: Placement) -> None:
    filled.service.clock.advance(600)
    assert "The rules are" in operator.get(PAGE).content.decode()


def test_the_page_answers_what_would_move(operator: Client, filled: Placement) -> None:
    text = operator.get(PAGE, {"ask": 1, "add": "a, -", "remove": "writer-1", "shards": ""}).content.decode()
    assert "Moved to other instances" in text
    assert "new-1" in text
    assert (
        "no instance nobody is on the ring"
        in operator.get(PAGE, {"ask": 1, "remove": "nobody"}).content.decode().lower()
    )
    assert "Number of shards: expected a number" in operator.get(PAGE, {"ask": 1, "shards": "many"}).content.decode()


def test_the_page_costs_few_queries_however_much_there_is(operator: Client, filled: Placement) -> None:
    with CaptureQueriesContext(connection) as few:
        operator.get(PAGE)
    filled.run(15, *[("acme", f"d{number}", number % 9 + 1, KIB) for number in range(60)])
    for number in range(10, 30):
        register_instance(Registration(name=f"writer-{number}", address="http://h:1"))
    with CaptureQueriesContext(connection) as many:
        operator.get(PAGE)
    assert len(many) == len(few) <= 6


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_list_and_row_has_a_page(operator: Client, filled: Placement, model: type) -> None:
    name = f"admin:placement_{model._meta.model_name}"
    with CaptureQueriesContext(connection) as asked:
        assert operator.get(reverse(f"{name}_changelist")).status_code == 200
    assert len(asked) <= 9
    row = model._default_manager.first()
    assert operator.get(reverse(f"{name}_change", args=[row.pk])).status_code == 200


def order_page(operator: Client, model: str, name: str, form: dict[str, object], ids: str = "") -> str:
    """Preview an order and give it; return the preview."""
    address = reverse(f"admin:placement_{model}_action", args=[name], query={"ids": ids} if ids else None)
    answer = operator.post(address, {**form, "ids": ids, "why": "w", "step": "preview"})
    assert answer.status_code == 200
    text = answer.content.decode()
    given = operator.post(address, {**form, "ids": ids, "why": "w", "step": "apply"})
    assert given.status_code == 302, given.content.decode()
    return text


def test_a_dataset_is_pinned_with_the_mouse_after_a_preview(operator: Client, filled: Placement) -> None:
    form = {"tenant": "acme", "dataset": "web", "shards": "9, 8"}
    text = order_page(operator, "placementoverride", "set", form)
    assert "Moved to other shards" in text
    assert PlacementOverride.objects.get(dataset="web").shards == [8, 9]
    row = PlacementOverride.objects.get(dataset="web")
    order_page(operator, "placementoverride", "change", {"shards": "8", "load_balancing": "round_robin"}, str(row.pk))
    assert PlacementOverride.objects.get(dataset="web").shards == [8]
    row = PlacementOverride.objects.get(dataset="web")
    order_page(operator, "placementoverride", "remove", {}, str(row.pk))
    assert not PlacementOverride.objects.filter(dataset="web").exists()


def test_limits_are_set_changed_and_taken_back_with_the_mouse(operator: Client, filled: Placement) -> None:
    order_page(operator, "placementlimit", "set", {"tenant": "", "tenant_shards": 12})
    row = PlacementLimit.objects.get(tenant="")
    order_page(operator, "placementlimit", "change", {"load_balancing": "round_robin"}, str(row.pk))
    row = PlacementLimit.objects.get(tenant="")
    assert (row.tenant_shards, row.load_balancing) == (12, 2)
    order_page(operator, "placementlimit", "remove", {}, str(row.pk))
    assert PlacementLimit.objects.count() == 1


def test_an_instance_is_drained_and_the_ring_sized_with_the_mouse(operator: Client, filled: Placement) -> None:
    row = Instance.objects.get(name="writer-2")
    assert "Unavoidable" in order_page(operator, "instance", "drain", {}, str(row.pk))
    assert "writer-2" not in {one.id for one in current_ring().instances}
    order_page(operator, "instance", "size-ring", {"shards": 200})
    assert current_ring().shards == 200


def test_an_invalid_pin_is_shown_at_the_form(operator: Client, filled: Placement) -> None:
    address = reverse("admin:placement_placementoverride_action", args=["set"])
    for shards in ("one", "9999", "0"):
        form = {"tenant": "acme", "dataset": "web", "shards": shards, "why": "w", "step": "apply"}
        answer = operator.post(address, form)
        assert answer.status_code == 200
        assert "shards" in answer.content.decode()
    assert not PlacementOverride.objects.filter(dataset="web").exists()
