"""Answers to questions about stored profiles, for viewers and on pages."""
