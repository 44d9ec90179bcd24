"""Programs to record: each does realistic work of one kind with installed libraries until it is interrupted."""
