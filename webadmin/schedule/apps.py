"""This app owns the plan of work: what waits, who holds what until when, and the log of every change to that."""

from django.apps import AppConfig


class ScheduleConfig(AppConfig):
    name = "webadmin.schedule"
    label = "schedule"
    verbose_name = "Schedule"
