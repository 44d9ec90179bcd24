"""The container format of blocks: footer, metadata, sections, and object keys."""
