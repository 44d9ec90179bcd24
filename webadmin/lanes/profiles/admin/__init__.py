"""Profile blocks in the admin."""

from webadmin.lanes.profiles.admin import blocks, deletion, letters, planning, quarantine, tombstones

__all__ = ["blocks", "deletion", "letters", "planning", "quarantine", "tombstones"]
