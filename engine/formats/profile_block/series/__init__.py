"""The series index of a dataset."""
