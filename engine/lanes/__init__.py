"""The four kinds of work. Each has a planner, job specifications and a merge; none imports another."""
