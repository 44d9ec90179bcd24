"""Every environment variable of Lithify, declared once: name, type, unit, default, meaning, and whether it is secret.

``base`` holds the types and the one error; ``service`` declares the variables of Django processes, ``node`` those of
compactor nodes and Spark programs, ``lanes`` the kinds of work; ``listing`` describes them for operators. It knows
neither Django nor Celery nor Spark, so that each process reads only what it needs.
"""
