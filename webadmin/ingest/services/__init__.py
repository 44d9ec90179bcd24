"""Use cases of pushes that change rows: limits that operators set, and the counts of what came and what was refused."""
