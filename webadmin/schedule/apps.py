"""The app of the schedule: waiting jobs, leases, and the log of every change to them."""

from django.apps import AppConfig

from webadmin.adminkit.navigation import Group, Link


class ScheduleConfig(AppConfig):
    name = "webadmin.schedule"
    label = "schedule"
    verbose_name = "Schedule"
    navigation = (
        Group(
            10,
            "Schedule",
            [
                Link("Jobs", "task_alt", "schedule.job"),
            ],
        ),
        Group(
            13,
            "Schedule",
            [
                Link("Stops of quarantine", "front_hand", "schedule.isolationstop"),
                Link("Workers", "memory", "schedule.worker"),
                Link("Command log", "receipt_long", "schedule.command"),
            ],
        ),
        Group(
            80,
            "Rules",
            [
                Link("Limits", "speed", "schedule.limits"),
                Link("Limits set at run time", "tune", "schedule.limitchange"),
                Link("Pauses", "pause_circle", "schedule.pause"),
            ],
        ),
    )
