"""Checks of a deployment: each tries a dependency with the real settings and credentials and reports what it found."""
