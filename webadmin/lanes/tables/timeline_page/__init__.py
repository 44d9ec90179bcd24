"""The zoomable timeline of a table in the admin: its page, and what its script asks."""
