"""Profile blocks: the objects that hold profiles of many services."""
