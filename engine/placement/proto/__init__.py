"""Protobuf messages of placement documents; regenerate with ``python -m engine.placement.proto.generate``."""
