"""Programs worth recording: each does real work of one kind with installed libraries, until it is interrupted."""
