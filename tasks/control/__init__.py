"""Control tasks: what the platform does by itself beside merging. Each is an edge that calls one service."""
