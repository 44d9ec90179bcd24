"""Services that change timelines: registration, controller cycle, commits, manifests, deletion, chunk actions."""
