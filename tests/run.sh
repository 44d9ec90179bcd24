#!/bin/sh
# The test command behind ./dev test: with arguments they go to pytest; without, everything that must hold before a change lands.
set -eu
cd "$(dirname "$0")/.."

# test_files WORD: the test files whose path or text contains a word. Like pytest -k, it ignores case.
test_files() {
    { find tests -name 'test_*.py' -ipath "*$1*"; grep -rliF --include='test_*.py' -e "$1" tests; } | sort -u
}

# "-k WORD" alone: collect only the files that contain the word. Ids of parameters that no file contains are not found.
if [ $# -eq 2 ] && [ "$1" = -k ]; then
    case $2 in
    *[!A-Za-z0-9_]*) ;; # an expression
    *)
        files=$(test_files "$2")
        [ "$(echo "$files" | wc -l)" -eq 1 ] || set -- -n 2 --dist loadgroup "$@"
        # shellcheck disable=SC2086
        [ -z "$files" ] || set -- "$@" $files
        ;;
    esac
fi

if [ $# -gt 0 ]; then
    exec .venv/bin/python -m pytest "$@"
fi

step() {
    title=$1
    shift
    echo "== $title"
    started=$(date +%s)
    "$@"
    echo "== $title: passed in $(($(date +%s) - started)) s"
}

# Parts of the engine in which nothing is compiled.
WITHOUT_KERNELS="lanes/catalog/plan lanes/profiles/plan lanes/tables/plan lanes/tsdb/plan recording protocol simulation storage"

debug_kernels() {
    # A second copy of the engine, compiled with every check on, beside the fast one.
    LITHIFY_DEBUG_BUILD=1 .venv/bin/python setup.py --quiet build --parallel 2 --build-lib .lithify/debug --build-temp .lithify/debug-temp >.lithify/debug-build.log 2>&1 ||
        { tail -n 40 .lithify/debug-build.log; return 1; }
    LITHIFY_EXPECT_DEBUG=1 .venv/bin/pytest -q -n 2 --hypothesis-profile=second_run -o pythonpath=".lithify/debug ." tests/engine \
        $(printf ' --ignore=tests/engine/%s' $WITHOUT_KERNELS)
}

mkdir -p .lithify
# Nothing may be touched outside of the checkout, LITHIFY_HOME, temporary folders and the caches of pip and npm.
.venv/bin/python -m tests.outside list .lithify/outside
trap '.venv/bin/python -m tests.outside compare .lithify/outside || exit 1' EXIT
step "format, lint, types, import rules" ./dev lint
.venv/bin/python -m tests.spark_classes
# One worker more than cores: tests of whole processes wait most of their time.
step "the suite, database-bound tests on SQLite" .venv/bin/pytest -q -n 3 --dist loadgroup
step "the database-bound suite on PostgreSQL" env LITHIFY_TEST_DATABASE=postgresql .venv/bin/pytest -q -n 3 tests/webadmin \
    tests/contracts/test_schedule_in_memory.py
step "the kernels in a bounds-checked debug build" debug_kernels
