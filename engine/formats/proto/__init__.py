"""Protobuf messages of profile objects; regenerate with ``python -m engine.formats.proto.generate``."""
