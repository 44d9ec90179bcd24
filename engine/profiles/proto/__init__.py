"""Protobuf messages of profile objects; regenerate with ``python -m engine.profiles.proto.generate``."""
