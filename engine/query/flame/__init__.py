"""Flame graphs: stacks merged into trees, cut, compared, drawn and exported; pure computing, no input or output."""
