"""Pure decisions of the catalog lane: when branches are compacted, how their records change, and what is retained."""
