"""Profiles of a small shop for the flame graph page: two regions, and a release that made parsing slow."""

from __future__ import annotations

from tests.webadmin.query.viewers.conftest import Viewer

SHOP = {
    "main;http.serve;shop.cart.add;json.loads;json.decoder.scan": 180,
    "main;http.serve;shop.cart.add;shop.prices.lookup;sqlite.execute": 240,
    "main;http.serve;shop.cart.add;shop.prices.lookup": 40,
    "main;http.serve;shop.cart.add": 15,
    "main;http.serve;shop.search.query;shop.search.rank;math.sqrt": 90,
    "main;http.serve;shop.search.query;shop.search.rank;json.loads;json.decoder.scan": 35,
    "main;http.serve;shop.search.query;re.match": 60,
    "main;http.serve;template.render;template.escape": 120,
    "main;http.serve;template.render": 45,
    "main;background.refresh;sqlite.execute": 70,
    "main;background.refresh;zlib.compress": 55,
    "runtime.gc": 50,
}
SLOWER = {**SHOP, "main;http.serve;shop.cart.add;json.loads;json.decoder.scan": 520, "runtime.gc": 20}
SLOWER["main;http.serve;tracing.record"] = 80
DEEP = {"main;" + ";".join(f"walk.level{depth:03}" for depth in range(60)): 30, "main": 5}
MANY = {
    f"main;plugin{number:02}.run;plugin{number:02}.step{step}": 40 - number for number in range(30) for step in range(3)
}
MS = 1_000_000
"""Values are milliseconds of CPU time."""


def fill(viewer: Viewer, minutes: int = 4) -> None:
    """Write a segment every ten seconds: the second half is after the release. The busiest minute is the third."""
    for number in range(6 * minutes):
        stacks = SHOP if number < 3 * minutes else SLOWER
        load = 2 if 12 <= number < 18 else 1
        region = "eu" if number % 2 else "us"
        viewer.write({name: value * load * MS for name, value in stacks.items()}, at=10_000 * number, region=region)
    viewer.write({name: value * MS for name, value in MANY.items()}, at=30_000, service_name="plugins")
    viewer.write({name: value * MS for name, value in DEEP.items()}, at=30_000, service_name="walker")
