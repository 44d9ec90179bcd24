"""This app owns no rows: it shows and changes who may do what, in the admin and over REST."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "webadmin.accounts"
    label = "accounts"
    verbose_name = "Who may do what"
