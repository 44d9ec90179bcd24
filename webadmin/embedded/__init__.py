"""The whole of Lithify on one machine: its programs, their supervisor, the demonstration."""
