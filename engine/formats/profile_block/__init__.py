"""Readers and writers of profile blocks, the objects that hold profiles of many services.

See ``docs/reference/formats/profile-block.md``.
"""
