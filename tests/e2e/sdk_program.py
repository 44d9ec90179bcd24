"""A program that people would write: it works, and the unmodified SDK sends where its time goes.

``sdk_program.py ADDRESS SECONDS [TENANT PASSWORD]``
"""

from __future__ import annotations

import sys
import time

import pyroscope

SERVICE = "sdk.program"


def sum_of_squares(limit: int) -> int:
    """The function that is to be found again."""
    return sum(number * number for number in range(limit))


def main(address: str, seconds: str, tenant: str = "", password: str = "") -> None:
    """Work for so long, then send what is left."""
    pyroscope.configure(
        application_name=SERVICE,
        server_address=address,
        upload_interval=1,
        tags={"region": "eu"},
        tenant_id=tenant,
        basic_auth_username="anybody" if password else "",
        basic_auth_password=password,
    )
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        sum_of_squares(20_000)
    pyroscope.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
