"""Profiles as people send and ask for them: the wire APIs of profilers and viewers, and the segment writer."""
