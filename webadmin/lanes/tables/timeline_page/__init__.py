"""The zoomable timeline of a table in the admin: the page, and the endpoints of its script."""
