"""Several profile blocks become one for each shard, dataset by dataset."""
