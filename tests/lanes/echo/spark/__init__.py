"""Text files on Spark."""
