"""Control tasks of the lane of profiles."""
