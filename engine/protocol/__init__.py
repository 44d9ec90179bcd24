"""What the service and a compactor node share: poll messages, job specifications, results, tokens."""
