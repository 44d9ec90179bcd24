"""What is changed on the pages of people and of beat's schedule is in the audit log."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from webadmin.base.access.models import AuditEntry


def entries() -> list[tuple[str, str, str]]:
    return list(AuditEntry.objects.order_by("id").values_list("actor", "action", "target"))


def test_a_new_operator_and_its_end_are_audited(operator: Client) -> None:
    words = {"username": "ann", "password1": "long enough 77", "password2": "long enough 77", "usable_password": "true"}
    assert operator.post(reverse("admin:auth_user_add"), words).status_code == 302
    ann = User.objects.get(username="ann")
    operator.post(reverse("admin:auth_user_delete", args=[ann.pk]), {"post": "yes"})
    assert not User.objects.filter(username="ann").exists()
    assert entries() == [("user:operator", "add_user", "ann"), ("user:operator", "delete_user", "ann")]
    assert "long enough" not in str(list(AuditEntry.objects.values_list("detail", flat=True)))


def test_changes_of_beats_schedule_are_audited_also_by_actions(operator: Client) -> None:
    interval = IntervalSchedule.objects.create(every=5, period="seconds")
    task = PeriodicTask.objects.create(name="Clean", task="control.clean", interval=interval)
    operator.post(
        reverse("admin:django_celery_beat_periodictask_changelist"),
        {"action": "disable_tasks", "_selected_action": [task.pk]},
    )
    task.refresh_from_db()
    assert not task.enabled
    operator.post(
        reverse("admin:django_celery_beat_intervalschedule_change", args=[interval.pk]),
        {"every": "7", "period": "seconds"},
    )
    [(_, first, target), (_, second, _)] = entries()
    assert (first, second) == ("disable_tasks", "change_intervalschedule")
    assert target.startswith("Clean")
    assert AuditEntry.objects.order_by("id").last().detail["changes"] == [
        {"changed": {"fields": ["Number of Periods"]}}
    ]
