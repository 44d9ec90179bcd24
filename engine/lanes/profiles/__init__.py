"""The profiles lane: compacts profile blocks by level."""
