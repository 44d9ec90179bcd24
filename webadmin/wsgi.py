"""The WSGI application: ``gunicorn webadmin.wsgi``."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webadmin.settings")
application = get_wsgi_application()
