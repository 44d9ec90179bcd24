"""One package per lane: its control tasks, and a manifest with their intervals."""
