"""The container of a block: footer, metadata, sections, and the names of objects."""
