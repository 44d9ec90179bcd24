"""Building the index from a bucket: real objects of another program, other layouts, bad objects, second runs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from engine.formats.profile_block.container.metadata import encode_footer
from tests.block_factory import block_meta, ulid
from tests.webadmin.service import Service, check_invariants
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block

OLD_MS = 1_500_000_000_000


def put(folder: Path, key: str, meta, *, damage: bytes = b"") -> None:
    """Write an object with this metadata as its footer and nothing real in its sections."""
    body = bytes(meta.metadata_offset)
    data = body + encode_footer(meta)
    (folder / key).parent.mkdir(parents=True, exist_ok=True)
    (folder / key).write_bytes(data + damage)


def run(*arguments: str) -> tuple[int, str, str]:
    """Run the command; return its exit code, output and error output."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("import_blocks", *arguments, stdout=out, stderr=err)
    except SystemExit as stop:
        return int(stop.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


@pytest.mark.foreign_data
def test_real_objects_are_imported_with_and_without_footers(service: Service, foreign_data: Path) -> None:
    bucket = foreign_data / "profiles" / "objects"
    code, out, _ = run("--bucket", str(bucket), "--metadata", str(bucket / "segments-meta.json"))
    assert (code, out) == (0, "8 blocks found, 8 imported, 0 known before, 0 of other tenants, 0 left out, 0 skipped\n")
    segments = Block.objects.filter(level=0)
    assert segments.count() == 5
    assert set(segments.values_list("shard", "state")) == {(1, "queued")}
    sample = Block.objects.get(object_key="samples/01JKT3DJRETWN25NKEFZNEP1V0/block.bin")
    assert (sample.ulid, sample.shard, sample.level, sample.state) == ("01JKT3DJREX3NVDAYNZMBA1FA2", 3, 3, "final")
    assert sample.tenant is not None
    assert sample.tenant.name == "anonymous"
    check_invariants()


@pytest.mark.foreign_data
def test_a_second_import_changes_nothing_even_without_the_side_file(service: Service, foreign_data: Path) -> None:
    bucket = foreign_data / "profiles" / "objects"
    run("--bucket", str(bucket), "--metadata", str(bucket / "segments-meta.json"))
    before = service.dump()
    code, out, _ = run("--bucket", str(bucket))
    assert (code, out) == (0, "8 blocks found, 0 imported, 8 known before, 0 of other tenants, 0 left out, 0 skipped\n")
    assert service.dump() == before


@pytest.mark.foreign_data
def test_segments_without_footer_and_description_are_reported(service: Service, foreign_data: Path) -> None:
    code, out, err = run("--bucket", str(foreign_data / "profiles" / "objects"))
    assert code == 1
    assert "3 imported" in out
    assert "5 skipped" in out
    assert "segments/1/anonymous/01J2VJQPYDC160REPAD2VN88XN/block.bin" in err
    assert "[truncated_object]" in err


def test_old_ids_and_other_layouts_are_imported(service: Service, tmp_path: Path) -> None:
    put(tmp_path, f"segments/1/anonymous/{ulid(OLD_MS, 1)}/block.bin", block_meta(ulid(OLD_MS, 1)))
    put(tmp_path, f"{ulid(OLD_MS, 2)}/block.bin", block_meta(ulid(OLD_MS - 1, 3), level=1, tenant="acme"))
    put(tmp_path, f"a/b/{ulid(OLD_MS, 4)}/block.bin", block_meta(ulid(OLD_MS, 4), shard=9))
    (tmp_path / "README.md").write_text("no block")
    code, out, _ = run("--bucket", f"file://{tmp_path}")
    assert (code, out.split(",")[0]) == (0, "3 blocks found")
    keys = dict(Block.objects.values_list("ulid", "object_key"))
    assert keys[ulid(OLD_MS - 1, 3)] == f"{ulid(OLD_MS, 2)}/block.bin"
    assert sorted(LevelQueue.objects.values_list("tenant", "shard", "level", "block_count")) == [
        ("", 1, 0, 1),
        ("", 9, 0, 1),
        ("acme", 1, 1, 1),
    ]
    check_invariants()


@pytest.mark.parametrize(
    ("key", "meta"),
    [
        ("segments/2/anonymous/{id}/block.bin", {"shard": 1}),
        ("blocks/1/acme/{id}/block.bin", {"level": 1, "tenant": "beta", "datasets": [("beta", "web")]}),
        ("blocks/1/acme/{id}/block.bin", {}),
        ("segments/1/anonymous/{id}/block.bin", {"level": 1, "tenant": "acme"}),
    ],
)
def test_an_object_whose_key_contradicts_its_metadata_is_skipped(
    service: Service, tmp_path: Path, key: str, meta: dict
) -> None:
    block_id = ulid(OLD_MS)
    put(tmp_path, key.format(id=block_id), block_meta(block_id, **meta))
    code, out, err = run("--bucket", str(tmp_path))
    assert code == 1
    assert "0 imported" in out
    assert "the key says" in err


def test_a_bad_object_does_not_stop_the_import(service: Service, tmp_path: Path) -> None:
    put(tmp_path, f"segments/1/anonymous/{ulid(OLD_MS, 1)}/block.bin", block_meta(ulid(OLD_MS, 1)))
    put(tmp_path, f"segments/1/anonymous/{ulid(OLD_MS, 2)}/block.bin", block_meta(ulid(OLD_MS, 2)), damage=b"x")
    empty = tmp_path / f"segments/1/anonymous/{ulid(OLD_MS, 3)}/block.bin"
    empty.parent.mkdir()
    empty.touch()
    code, out, err = run("--bucket", str(tmp_path))
    assert (code, out) == (1, "3 blocks found, 1 imported, 0 known before, 0 of other tenants, 0 left out, 2 skipped\n")
    assert err.count("skipped ") == 2


def test_an_object_that_changed_under_a_known_id_is_reported(service: Service, tmp_path: Path) -> None:
    key = f"segments/1/anonymous/{ulid(OLD_MS)}/block.bin"
    put(tmp_path, key, block_meta(ulid(OLD_MS)))
    assert run("--bucket", str(tmp_path))[0] == 0
    put(tmp_path, key, block_meta(ulid(OLD_MS), datasets=[("acme", "api")]))
    code, _, err = run("--bucket", str(tmp_path))
    assert code == 1
    assert f"kept {ulid(OLD_MS)} as it is" in err


def test_a_side_file_that_names_no_object_is_reported(service: Service, tmp_path: Path) -> None:
    side_file = tmp_path / "meta.json"
    side_file.write_text(f'{{"blocks": [{{"id": "{ulid(OLD_MS)}", "shard": 1}}]}}')
    code, _, err = run("--bucket", str(tmp_path), "--metadata", str(side_file))
    assert code == 1
    assert f"skipped {ulid(OLD_MS)}" in err


@pytest.mark.parametrize("content", [None, "{", '{"blocks": 7}', '{"blocks": [{"id": 7}]}'])
def test_a_side_file_that_is_none_is_an_error(service: Service, tmp_path: Path, content: str | None) -> None:
    side_file = tmp_path / "meta.json"
    if content is not None:
        side_file.write_text(content)
    with pytest.raises(CommandError, match="meta"):
        call_command("import_blocks", "--bucket", str(tmp_path), "--metadata", str(side_file))


def test_only_the_wanted_tenants_are_imported(service: Service, tmp_path: Path) -> None:
    put(tmp_path, f"{ulid(OLD_MS, 1)}/block.bin", block_meta(ulid(OLD_MS, 1)))
    put(tmp_path, f"{ulid(OLD_MS, 2)}/block.bin", block_meta(ulid(OLD_MS, 2), datasets=[("beta", "web")]))
    code, out, _ = run("--bucket", str(tmp_path), "--tenant", "beta")
    assert (code, out) == (0, "2 blocks found, 1 imported, 0 known before, 1 of other tenants, 0 left out, 0 skipped\n")
    assert Block.objects.get().ulid == ulid(OLD_MS, 2)


def test_a_large_bucket_is_imported_in_batches_with_progress(service: Service, tmp_path: Path) -> None:
    for number in range(230):
        put(tmp_path, f"{ulid(OLD_MS, number)}/block.bin", block_meta(ulid(OLD_MS, number)))
    _, out, err = run("--bucket", str(tmp_path))
    assert "230 imported" in out
    assert [line for line in err.splitlines() if "seen" in line] == [
        "100 objects seen, 100 imported",
        "200 objects seen, 200 imported",
        "230 objects seen, 230 imported",
    ]


def test_a_result_beside_its_first_source_is_left_out_unless_everything_is_wanted(
    service: Service, tmp_path: Path
) -> None:
    put(tmp_path, f"segments/1/anonymous/{ulid(OLD_MS, 1)}/block.bin", block_meta(ulid(OLD_MS, 1)))
    put(tmp_path, f"blocks/1/acme/{ulid(OLD_MS, 2)}/block.bin", block_meta(ulid(OLD_MS, 2), level=1, tenant="acme"))
    code, out, err = run("--bucket", str(tmp_path))
    assert (code, out) == (0, "2 blocks found, 1 imported, 0 known before, 0 of other tenants, 1 left out, 0 skipped\n")
    assert f"left out blocks/1/acme/{ulid(OLD_MS, 2)}/block.bin: its first source is still there" in err
    assert Block.objects.get().level == 0
    _, out, _ = run("--bucket", str(tmp_path), "--everything", "--prefix", "blocks/")
    assert "1 imported" in out
