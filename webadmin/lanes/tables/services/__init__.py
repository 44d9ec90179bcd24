"""What changes timelines: registration, the controller's cycle, commits, manifests, deletion, orders."""
