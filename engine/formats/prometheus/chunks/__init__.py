"""Chunk files and the encodings of samples."""
