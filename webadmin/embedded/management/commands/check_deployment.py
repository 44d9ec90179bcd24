"""``manage.py check_deployment``: check every dependency with the real credentials and report problems."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections import Counter
from typing import Any

from django.core.management.base import BaseCommand

from webadmin.embedded.deployment.checks import run_checks
from webadmin.embedded.deployment.findings import Finding, Level


class Command(BaseCommand):
    """Run all checks of the deployment and print what each found."""

    help = "Try every dependency with the real settings and credentials. Exit code 1 if a check found an error."
    requires_system_checks: list[str] = []  # One of them needs the database, and would end the command early.

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the output format."""
        parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the findings and exit with 1 if one is an error."""
        findings: list[Finding] = []
        for finding in run_checks():
            findings.append(finding)
            if not options["json"]:
                self.stdout.write(_line(finding))
        counts = Counter(finding.level for finding in findings)
        if options["json"]:
            rows = [finding.to_json() for finding in findings]
            counted = {level.value: counts[level] for level in Level}
            self.stdout.write(json.dumps({"counts": counted, "findings": rows}, indent=2))
        else:
            self.stdout.write(", ".join(f"{counts[level]} {level.value}" for level in Level))
        if counts[Level.ERROR]:
            sys.exit(1)


def _line(finding: Finding) -> str:
    advice = f" To do: {finding.advice}." if finding.advice else ""
    return f"{finding.level.value:<8}{finding.name}: {finding.found}.{advice}"
