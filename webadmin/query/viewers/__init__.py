"""APIs for profile viewers: the Connect service and the older GET endpoints."""
