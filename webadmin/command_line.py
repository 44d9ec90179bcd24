"""The command ``lithify`` (= ``manage.py``)."""

import os
import sys

from engine.settings.base import BadSetting


def main() -> None:
    """Run a management command; 2 when settings are missing or invalid."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webadmin.settings")
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except BadSetting as error:
        print(f"lithify: {error}", file=sys.stderr)
        sys.exit(2)
