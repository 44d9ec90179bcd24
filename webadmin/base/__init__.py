"""What every app uses: the database, access, bounds and errors of requests."""
