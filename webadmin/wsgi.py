"""The WSGI application: ``gunicorn webadmin.wsgi``."""

import gc
import os
import sys

from django.core.wsgi import get_wsgi_application

# A thread that has its answer from the database waits up to this long (seconds) for one that computes. Whoever holds
# the head of the log does so a dozen times, and everybody else waits for him; Python's own value is 5 ms.
SWITCH_SECONDS = 0.0005

sys.setswitchinterval(SWITCH_SECONDS)
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webadmin.settings")
application = get_wsgi_application()
# What has been loaded until here stays: looking through it again and again is most of what collecting garbage costs.
gc.collect()
gc.freeze()
