"""What readers may read of a block is what the index shows: without deleted datasets, with the masks that apply."""

from __future__ import annotations

from tests.webadmin.lanes.profiles.test_delete_requests import delete
from tests.webadmin.service import Service
from webadmin.lanes.profiles.masks import mask_of, visible_datasets
from webadmin.lanes.profiles.models import Block, Dataset


def test_readers_receive_the_masks_of_each_dataset(service: Service) -> None:
    service.add_segments(2, datasets=[("acme", "api"), ("acme", "web"), ("beta", "web")])
    part = mask_of(delete(service="web", selector='{service_name="web"}'))
    delete(service="api")
    blocks = list(Block.objects.values_list("id", flat=True))
    assert visible_datasets(blocks) == {block: {1: (part,), 2: ()} for block in blocks}


def test_what_came_later_is_shown(service: Service) -> None:
    service.add_segments(1)
    delete()
    service.clock.advance(5)
    service.add_segments(1)
    first, second = Block.objects.order_by("id").values_list("id", flat=True)
    assert visible_datasets([first, second]) == {first: {}, second: {0: ()}}


def test_datasets_dropped_by_retention_are_not_visible(service: Service) -> None:
    service.add_segments(1, datasets=[("acme", "web"), ("beta", "web")])
    Dataset.objects.filter(tenant__name="acme").delete()  # as retention does with a tenant's part of a segment
    [block] = Block.objects.values_list("id", flat=True)
    assert visible_datasets([block]) == {block: {1: ()}}


def test_reading_costs_a_fixed_number_of_queries(service: Service, django_assert_num_queries) -> None:
    service.add_segments(30)
    blocks = list(Block.objects.values_list("id", flat=True))
    with django_assert_num_queries(2):
        visible_datasets(blocks)
