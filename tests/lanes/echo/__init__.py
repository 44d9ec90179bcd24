"""A lane that only the tests have: it concatenates text files. docs/explanation/adding-a-lane.md walks through it."""
