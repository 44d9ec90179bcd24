"""Plots of adaptive placement as SVG: traces of the allocator, and four archetypes of load."""
