"""Protobuf messages of placement documents; regenerate with ``python -m engine.formats.proto.generate``."""
