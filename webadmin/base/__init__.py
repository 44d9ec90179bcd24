"""Infrastructure shared by all apps: database, access control, limits and errors of requests."""
