"""The WSGI application, which ``webadmin.serving.gunicorn_settings`` names to gunicorn."""

import contextlib
import ctypes
import gc
import os
import sys

from django.core.wsgi import get_wsgi_application

from webadmin.base.database.deadlines import ProcessRole, limit_statements
from webadmin.schedule.history_check import check_history

# glibc gives many threads an arena each, and what one thread has freed there no other can have: fifty questions, each
# within the memory for all, would leave four times that memory behind. Other C libraries have no such call.
M_ARENA_MAX, ARENAS = -8, 2

with contextlib.suppress(AttributeError, OSError):
    ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)

# A thread that has its answer from the database waits up to this long (seconds) for one that computes. Whoever holds
# the head of the log does so a dozen times, and everybody else waits for him; Python's own value is 5 ms.
SWITCH_SECONDS = 0.0005


sys.setswitchinterval(SWITCH_SECONDS)
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webadmin.settings")
application = get_wsgi_application()
limit_statements(ProcessRole.WEB)
check_history()
# What has been loaded until here stays: looking through it again and again is most of what collecting garbage costs.
gc.collect()
gc.freeze()
