"""Guessing passwords: after some failures the account and the address are locked, for right passwords too."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from django.urls import reverse

from webadmin.base.access.logins import client_address

PASSWORD = "a long and good password"


@pytest.fixture
def account(db: None, settings: Any) -> User:
    settings.AXES_FAILURE_LIMIT = 3
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return User.objects.create_user("ann", password=PASSWORD, is_staff=True)


def sign_in(name: str, password: str, address: str = "192.0.2.1", **headers: str) -> Any:
    form = {"username": name, "password": password}
    return Client(REMOTE_ADDR=address).post(reverse("admin:login"), form, headers=headers)


def test_the_right_password_is_refused_after_wrong_ones(account: User) -> None:
    assert sign_in("ann", PASSWORD).status_code == 302
    answers = [sign_in("ann", f"guess {number}", f"192.0.2.{number}").status_code for number in range(3)]
    assert answers == [200, 200, 429]
    refused = sign_in("ann", PASSWORD, "198.51.100.7")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "900")
    assert "sessionid" not in refused.cookies


def test_an_address_that_guesses_is_locked_for_all_accounts(account: User) -> None:
    for number in range(3):
        sign_in(f"somebody-{number}", "guess")
    assert sign_in("ann", PASSWORD).status_code == 429
    assert sign_in("ann", PASSWORD, "198.51.100.7").status_code == 302


def test_a_login_with_another_account_in_between_forgets_no_failure(account: User) -> None:
    User.objects.create_user("bob", password=PASSWORD, is_staff=True)
    for number in range(2):
        assert sign_in("ann", "guess", f"192.0.2.{number}").status_code == 200
        assert sign_in("bob", PASSWORD, f"192.0.2.{number}").status_code == 302
    assert sign_in("ann", "guess", "192.0.2.9").status_code == 429
    assert sign_in("ann", PASSWORD).status_code == 429


def test_behind_proxies_the_address_is_the_one_that_the_first_of_them_saw(settings: Any) -> None:
    def seen(forwarded: str) -> str:
        return client_address(RequestFactory().get("/", headers={"X-Forwarded-For": forwarded}, REMOTE_ADDR="10.0.0.1"))

    assert seen("192.0.2.1") == "10.0.0.1", "without a proxy the header is anybody's"
    settings.PROXY_COUNT = 2
    assert seen("1.1.1.1, 192.0.2.1, 10.0.0.2") == "192.0.2.1"
    assert seen("10.0.0.2") == "10.0.0.1"
