"""What viewers of profiles ask: the Connect service and the older GET addresses that they know."""
