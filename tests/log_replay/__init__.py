"""Replays the command log to the state that it describes: the oracle of tests that compare log and tables."""
