"""Flame graphs: trees of merged stacks, truncated, compared, rendered and exported. No I/O."""
