"""Plots of adaptive placement as SVG: traces of the allocator, and four load_curves of load."""
