"""Placement of profiles: segment writers and their shards, the placement rules, and operators' settings."""
