"""Codecs of chunk files and samples."""
