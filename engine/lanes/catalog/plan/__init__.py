"""When a branch's staged changes are compacted, and how its record moves meanwhile: all pure."""
