"""Pictures of adaptive placement: the allocator's traces and the four archetypes of load, as SVG."""
