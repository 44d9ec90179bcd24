"""What-if of a writer that makes the ring grow says why so much moves, and what to do first."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from tests.webadmin.service import Service
from webadmin.placement.services.forecast_placement import FleetChange, what_if
from webadmin.placement.services.instances import Registration, current_ring, register_instance, size_ring


@pytest.fixture
def writers(service: Service) -> None:
    """Two writers of four tokens on a ring of 8 shards: a third does not fit."""
    for number in (1, 2):
        register_instance(Registration(name=f"writer-{number}", address="http://h:1"))
    assert current_ring().shards == 8


def test_growth_of_the_ring_is_explained_by_command_and_page(writers: None, admin_client: Client) -> None:
    seen = what_if(FleetChange(add=("",)))
    assert seen.shards == (8, 24)
    assert seen.moved > 1.5 * seen.unavoidable
    assert seen.moved_in_kept_ring <= 1.2 * seen.unavoidable
    out = StringIO()
    call_command("placement", "what-if", "--add", "", stdout=out)
    told = json.loads(out.getvalue())
    [note] = [note for note in told["notes"] if note.startswith("The ring grows from 8 to 24 shards: ")]
    assert "its instances then have 12 tokens" in note
    assert f"so {told['moved_to_other_instances']} of what is written goes to other instances" in note
    assert f"with 8 shards it would be {told['moved_if_shards_stayed']}" in note
    assert "placement ring-size 24, run before the instance starts" in note
    page = admin_client.get(reverse("placement-page"), {"ask": 1, "add": "-"}).content.decode()
    assert "The ring grows from 8 to 24 shards: " in page
    assert "Moved if shards stayed" in page


def test_after_the_advice_the_new_writer_moves_its_share_only(writers: None) -> None:
    size_ring(24, actor="operator", reason="a third writer comes")
    seen = what_if(FleetChange(add=("",)))
    assert seen.shards == (24, 24)
    assert seen.moved == seen.moved_in_kept_ring <= 1.2 * seen.unavoidable
    assert not any("ring" in note for note in seen.notes)


def test_another_number_of_shards_is_explained_without_advice(writers: None) -> None:
    [note] = [note for note in what_if(FleetChange(shards=16)).notes if "shards" in note]
    assert note.startswith("The ring changes from 8 to 16 shards. The shard of a dataset depends on their number")
    assert "with 8 shards it would be 0.0 %" in note
    assert "ring-size" not in note
