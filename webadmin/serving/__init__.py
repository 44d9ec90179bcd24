"""The web process: connections with deadlines in an event loop, the WSGI application in pools of threads."""

GUNICORN_SETTINGS = "python:webadmin.serving.gunicorn_settings"
"""The value of gunicorn's ``--config``."""
