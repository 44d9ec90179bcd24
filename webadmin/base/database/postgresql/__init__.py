"""Django's PostgreSQL backend with one addition: a connection that does not answer is closed after a timeout."""
