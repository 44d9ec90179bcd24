"""Control tasks of the lane of tables."""
