"""The segment writer: gathers profiles per shard, makes segments of them, and acknowledges what is durable."""
