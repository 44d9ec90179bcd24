"""The pure library: formats, planners, schedule decisions and merges; no Django, Celery, Spark or HTTP."""
