"""Celery: the app, the beat schedule, the compactor node, the control tasks."""
