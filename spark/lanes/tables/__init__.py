"""Tables on Spark."""
