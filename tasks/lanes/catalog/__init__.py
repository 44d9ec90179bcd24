"""Control tasks of the lane of catalogs."""
