"""Ingestion: decode and validate pushed profiles of all supported protocols. Rejections have a reason code."""
