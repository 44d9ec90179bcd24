"""Control tasks: the periodic work of the platform beside merging. Each task calls one service."""
