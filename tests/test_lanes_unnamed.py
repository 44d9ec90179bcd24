"""The frame knows no lane by name: it iterates over manifests, so that a lane is added in folders of its own."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from engine.settings.lanes import SHIPPED_LANES

ROOT = Path(__file__).parents[1]
FRAME = (
    *("engine/core", "engine/protocol", "engine/schedule", "engine/storage"),
    *("spark", "tasks"),
    *("webadmin/accounts", "webadmin/adminkit", "webadmin/base", "webadmin/console"),
    *("webadmin/progress", "webadmin/schedule"),
    *("webadmin/settings.py", "webadmin/urls.py"),
)
NAMED = re.compile(rf"\b(?:{'|'.join(SHIPPED_LANES)})(?:\b|_)")
OTHER_MEANINGS = {
    # Where a word means something else, and what.
    "engine/core/metrics.py": "profiles that clients push",
    "spark/profiles_options.py": "the data source that reads profiles",
    "spark/profiles_source.py": "the data source that reads profiles",
    "webadmin/accounts/management/commands/credentials.py": "the name of the command that makes access keys",
    "webadmin/accounts/credential_actions.py": "scopes of credentials, a wire format",
    "webadmin/base/access/scopes.py": "scopes of credentials, a wire format",
    "webadmin/base/access/tenant_places.py": "the root folder of tenants' own tables, a setting",
    "webadmin/schedule/polls/opening.py": "tables of the database",
}


def frame_modules() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *FRAME],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    names = [name for name in listing.split("\0") if name.endswith((".py", ".html"))]
    return [ROOT / name for name in names if (ROOT / name).is_file() and not re.search("/(lanes|migrations)/", name)]


def words_of(module: Path) -> Iterator[str]:
    """Yield the names and texts of a module, without comments and docstrings."""
    if module.suffix == ".html":
        yield from re.findall(r"\{[{%].*?[%}]\}", module.read_text())
        return
    tree = ast.parse(module.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name for alias in node.names)
            yield getattr(node, "module", None) or ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
        else:
            yield from (str(getattr(node, field)) for field in ("id", "attr", "arg", "name") if hasattr(node, field))


def test_the_frame_names_no_lane() -> None:
    modules = {str(path.relative_to(ROOT)): path for path in frame_modules()}
    assert len(modules) > 200
    found = {name: word for name, path in modules.items() for word in words_of(path) if NAMED.search(word)}
    assert found.keys() - OTHER_MEANINGS.keys() == set(), found
    assert OTHER_MEANINGS.keys() - found.keys() == set(), "a reason that nothing needs any more"
