"""The flame graph page of the web application and its internal JSON endpoints, with session authentication."""
