"""The command ``lithify`` (= ``manage.py``)."""

import os
import sys


def main() -> None:
    """Run a management command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webadmin.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
