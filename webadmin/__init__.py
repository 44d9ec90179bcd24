"""The Django project: the transactional index, the schedule, the REST API, the admin."""
