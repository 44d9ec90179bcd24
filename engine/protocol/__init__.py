"""The protocol between the service and compactor nodes: poll messages, JSON encoding, fencing tokens."""
