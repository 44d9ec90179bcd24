"""The admin site's front page, and beat's schedules in the theme."""

from __future__ import annotations

from django.contrib import admin
from django_celery_beat.admin import ClockedScheduleAdmin as PlainClockedScheduleAdmin
from django_celery_beat.admin import CrontabScheduleAdmin as PlainCrontabScheduleAdmin
from django_celery_beat.admin import PeriodicTaskAdmin as PlainPeriodicTaskAdmin
from django_celery_beat.admin import PeriodicTaskForm, TaskSelectWidget
from django_celery_beat.models import (
    ClockedSchedule,
    CrontabSchedule,
    IntervalSchedule,
    PeriodicTask,
    SolarSchedule,
)
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from webadmin.adminkit.audited import AuditedAdmin

admin.site.index_template = "console/front_page.html"

for model in (PeriodicTask, IntervalSchedule, CrontabSchedule, SolarSchedule, ClockedSchedule):
    admin.site.unregister(model)


class TaskSelect(UnfoldAdminSelectWidget, TaskSelectWidget):
    """The list of known tasks."""

    template_name = "unfold/widgets/select.html"


class TaskForm(PeriodicTaskForm):
    """A periodic task with the theme's fields."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self.fields["task"].widget = UnfoldAdminTextInputWidget()
        self.fields["regtask"].widget = TaskSelect()


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(AuditedAdmin, PlainPeriodicTaskAdmin, ModelAdmin):
    """The tasks that beat starts, and their schedules."""

    form = TaskForm
    # Beat's own template has an inline script, which the Content-Security-Policy blocks.
    change_form_template = "admin/change_form.html"
    audited_actions = ("enable_tasks", "disable_tasks", "toggle_tasks", "run_tasks")


@admin.register(IntervalSchedule)
class IntervalScheduleAdmin(AuditedAdmin, ModelAdmin):
    """Schedules with a fixed interval."""


@admin.register(CrontabSchedule)
class CrontabScheduleAdmin(AuditedAdmin, PlainCrontabScheduleAdmin, ModelAdmin):
    """Schedules by calendar."""


@admin.register(SolarSchedule)
class SolarScheduleAdmin(AuditedAdmin, ModelAdmin):
    """Schedules by sunrise and sunset."""


@admin.register(ClockedSchedule)
class ClockedScheduleAdmin(AuditedAdmin, PlainClockedScheduleAdmin, ModelAdmin):
    """Schedules that run once."""
