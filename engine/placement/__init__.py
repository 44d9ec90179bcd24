"""Where profiles are written: which shard a profile has, which instance writes it, how many shards a dataset has.

Everything here is pure: a snapshot goes in, a decision comes out. ``placer`` is the hot path of a distributor,
``ring`` says which instance hosts which shard, ``build_rules`` adapts the number of shards to the load.
"""
