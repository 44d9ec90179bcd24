"""The simulated environment: virtual time, workers, writers, operators and faults."""
