"""The symbols of a dataset: tables of strings, functions, locations, and stack trees."""
