"""The demonstration of the main job: many small profile objects become a few blocks, and the answers stay the same."""
