"""Makes the texts of the golden Prometheus blocks: ``python -m tests.golden.prometheus FOLDER``."""

from __future__ import annotations

import random
import sys
from pathlib import Path

START_S = 1_704_067_200
"""2024-01-01 00:00 UTC"""
REPLICAS = {"a": 0, "b": 7}
"""The offset of each replica's scrapes in seconds."""


def open_metrics(offset_s: int, draw: random.Random) -> str:
    """Return an hour of four counters and three gauges in the OpenMetrics text format."""
    lines = ["# TYPE http_requests counter"]
    for job in ("api", "web"):
        for code in ("200", "500"):
            total = 0
            for scrape in range(240):
                total += draw.randrange(0, 9)
                labels = f'job="{job}",code="{code}",instance="host-{job}"'
                lines.append(f"http_requests_total{{{labels}}} {total} {START_S + offset_s + scrape * 15}")
    lines.append("# TYPE temperature gauge")
    for room in ("a", "ä room", '\\"quoted\\"'):
        for scrape in range(120):
            value = round(draw.gauss(20, 3), 3)
            lines.append(f'temperature{{room="{room}"}} {value} {START_S + offset_s + scrape * 30}')
    return "\n".join([*lines, "# EOF", ""])


def main() -> None:
    folder = Path(sys.argv[1])
    draw = random.Random(7)
    for replica, offset_s in REPLICAS.items():
        (folder / f"{replica}.om").write_text(open_metrics(offset_s, draw))


if __name__ == "__main__":
    main()
