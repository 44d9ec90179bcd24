"""The flame graph page of the web application, and the answers that its script asks for under the same session."""
