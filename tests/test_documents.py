"""The documents say what the code does: commands, settings, endpoints, links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import get_commands
from drf_spectacular.generators import SchemaGenerator

from engine.settings.listing import PROCESSES, default_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"])


def _first_column(page: Path) -> set[str]:
    """Return the words in code type in the first column of a page's tables."""
    rows = [line.split("|")[1] for line in page.read_text().splitlines() if line.startswith("| `")]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


def test_the_reference_lists_every_command_and_no_other() -> None:
    ours = {name for name, app in get_commands().items() if app.startswith("webadmin.")}
    assert _first_column(DOCS / "reference/commands.md") == ours


def test_the_reference_lists_every_endpoint_and_no_other() -> None:
    schema = SchemaGenerator().get_schema(request=None, public=True)
    endpoints = {f"{method.upper()} {path}" for path, methods in schema["paths"].items() for method in methods}
    listed = {entry for entry in _first_column(DOCS / "reference/api.md") if "/api/" in entry}
    assert listed == endpoints


def _described_settings() -> dict[str, dict[str, str]]:
    """Return the settings of each section of the reference page with their defaults."""
    sections: dict[str, dict[str, str]] = {}
    for part in re.split(r"^## ", (DOCS / "reference/settings.md").read_text(), flags=re.MULTILINE)[1:]:
        rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in part.splitlines() if line.startswith("| `")]
        defaults = {name: default for names, default in rows for name in re.findall(r"`([^`]+)`", names)}
        sections[part.splitlines()[0].partition(" (")[0]] = defaults
    return sections


def test_the_reference_lists_every_setting_with_its_default_and_no_other() -> None:
    described = _described_settings()
    assert list(described) == list(PROCESSES)
    for process, kinds in PROCESSES.items():
        declared = {name: default_of(kind, name) for kind in kinds for name in kind.model_fields}
        assert described[process].keys() == declared.keys()
        found = {name: text.replace("`", "") for name, text in described[process].items() if text != "as above"}
        assert found == {name: declared[name] for name in found}


def test_variables_of_ours_are_read_through_their_declarations() -> None:
    declared = {name for kinds in PROCESSES.values() for kind in kinds for name in kind.model_fields}
    own = declared - {"LITHIFY_PURE"}  # read when a kernel is chosen, before anything else is imported
    sources = [path for room in ("engine", "spark", "tasks", "webadmin") for path in (ROOT / room).rglob("*.py")]
    read = {
        name: path
        for path in sources
        for name in re.findall(r"""environ(?:\.get\(|\[)\s*["']([A-Z_]+)["']""", path.read_text())
    }
    assert not {name: path for name, path in read.items() if name in own}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    lost = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not lost


def test_every_decision_is_listed() -> None:
    listed = (DOCS / "decisions/README.md").read_text()
    assert not [page.name for page in (DOCS / "decisions").glob("0*.md") if page.name not in listed]


def test_files_named_in_the_tour_exist_and_define_the_names() -> None:
    tour = (DOCS / "explanation/tour.md").read_text()
    for path, name in re.findall(r"`([a-z_/]+\.py): (?:\w+\.)?(\w+)`", tour):
        assert re.search(rf"(def|import) {name}\b", (ROOT / path).read_text()), f"{path}: {name}"


def test_every_fault_of_the_reference_has_its_test() -> None:
    named = re.findall(r"`(tests/[^`:]+)::(\w+)`", (DOCS / "reference/faults.md").read_text())
    assert len(named) > 20
    missing = [name for file, name in named if f"def {name}(" not in (ROOT / file).read_text()]
    assert not missing
