"""A small shop's back end: orders as JSON, priced in decimals, kept in SQLite, archived and mailed."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import random
import sqlite3
import string
import urllib.parse
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from email import message_from_bytes, policy
from email.message import EmailMessage

SEED = 20240711
BATCH = 40
KEPT_ORDERS = 5_000
"""Maximum rows of the table, so that memory and queries keep their size."""

LETTER = string.Template("Dear $customer,\n\nthank you for your order of $total EUR.\n\n$lines\n")


@dataclass(frozen=True, slots=True)
class Line:
    """One position of an order."""

    article: str
    count: int
    price: Decimal


@dataclass(frozen=True, slots=True)
class Order:
    """An order of the shop."""

    number: int
    customer: str
    placed_at: str
    lines: tuple[Line, ...]

    @property
    def total(self) -> Decimal:
        net = sum((line.price * line.count for line in self.lines), Decimal(0))
        return (net * Decimal("1.19")).quantize(Decimal("0.01"), ROUND_HALF_UP)


def main() -> None:
    """Take, store, look up and report orders, endlessly."""
    draw = random.Random(SEED)
    database = open_database()
    numbers = itertools.count(1)
    while True:
        orders = [new_order(next(numbers), draw) for _ in range(BATCH)]
        received = [parse(json.dumps(asdict(order), default=str, indent=1)) for order in orders]
        store(database, received)
        for order in received[:8]:
            confirm(order)
        report(database)
        export_catalogue(received)
        archive(received)


def open_database() -> sqlite3.Connection:
    """Return an empty database in memory."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT, day TEXT, total TEXT, body TEXT)")
    database.execute("CREATE INDEX orders_by_customer ON orders (customer, day)")
    return database


def new_order(number: int, draw: random.Random) -> Order:
    """Return a random order."""
    lines = tuple(
        Line(f"article-{draw.randrange(300)}", draw.randint(1, 9), Decimal(draw.randrange(99, 9999)) / 100)
        for _ in range(draw.randint(1, 12))
    )
    placed_at = datetime(2024, 7, 1, tzinfo=UTC) + timedelta(minutes=7 * number)
    return Order(number, f"customer-{draw.randrange(200)}@example.org", placed_at.isoformat(), lines)


def parse(text: str) -> Order:
    """Read an order from JSON."""
    body = json.loads(text, parse_float=Decimal)
    lines = tuple(Line(line["article"], int(line["count"]), Decimal(line["price"])) for line in body["lines"])
    return Order(body["number"], body["customer"], datetime.fromisoformat(body["placed_at"]).isoformat(), lines)


def store(database: sqlite3.Connection, orders: list[Order]) -> None:
    """Write orders in one transaction and drop the oldest ones."""
    with database:
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", rows(orders))
        database.execute("DELETE FROM orders WHERE number <= ?", (orders[-1].number - KEPT_ORDERS,))


def rows(orders: list[Order]) -> Iterator[tuple[int, str, str, str, str]]:
    """Yield table rows of orders."""
    for order in orders:
        yield order.number, order.customer, order.placed_at[:10], str(order.total), repr(order.lines)


def report(database: sqlite3.Connection) -> str:
    """Return turnover per day as CSV."""
    out = io.StringIO()
    writer = csv.writer(out)
    query = "SELECT day, count(*), sum(CAST(total AS REAL)) FROM orders GROUP BY day ORDER BY day DESC LIMIT 30"
    for day, count, total in database.execute(query):
        writer.writerow([day, count, f"{total:.2f}"])
    return out.getvalue()


def confirm(order: Order) -> str:
    """Write a mail, send it through the wire format, and return its subject as a receiver reads it."""
    mail = EmailMessage(policy=policy.SMTP)
    mail["Subject"] = f"Order {order.number}: thank you, {order.total} EUR"
    mail["From"], mail["To"] = "shop@example.org", order.customer
    lines = "\n".join(f"{line.count:3} of {line.article} at {line.price}" for line in order.lines)
    mail.set_content(LETTER.substitute(customer=order.customer, total=order.total, lines=lines))
    mail.add_attachment(lines.encode(), maintype="text", subtype="csv", filename=f"order-{order.number}.csv")
    received = message_from_bytes(mail.as_bytes(), policy=policy.default)
    return str(received["Subject"])


def export_catalogue(orders: list[Order]) -> bytes:
    """Return the articles of orders as XML with links."""
    root = ElementTree.Element("catalogue")
    for line in itertools.chain.from_iterable(order.lines for order in orders):
        article = ElementTree.SubElement(root, "article", name=line.article)
        link = urllib.parse.urlencode({"article": line.article, "price": str(line.price)})
        article.text = urllib.parse.urlunsplit(("https", "shop.example.org", "/find", link, ""))
    ElementTree.indent(root)
    return ElementTree.tostring(root)


def archive(orders: list[Order]) -> str:
    """Compress orders and return the digest of the archive."""
    packed = zlib.compress(json.dumps([asdict(order) for order in orders], default=str).encode(), 9)
    return hashlib.sha256(packed).hexdigest()


if __name__ == "__main__":
    main()
