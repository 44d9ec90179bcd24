"""gunicorn's settings of the web process: ``gunicorn --config python:webadmin.serving.gunicorn_settings``.

Options on the command line have precedence (``--bind``, ``--workers``, ``--threads``); another ``--worker-class`` would
serve without deadlines, and slow clients could occupy all threads.
"""

import os

wsgi_app = "webadmin.wsgi:application"
worker_class = "webadmin.serving.web_worker.WebWorker"
bind = "127.0.0.1:8000"
workers = min(2, os.cpu_count() or 1)
threads = 8
keepalive = 75
graceful_timeout = 10
control_socket_disable = True
