"""Placement of pushed profiles: the shard of a profile, the instance that writes it, the shards of a dataset.

All functions are pure: they map a snapshot to a decision. ``placer`` is the hot path of a distributor, ``ring`` maps
shards to instances, ``build_rules`` adapts the number of shards to the load.
"""
