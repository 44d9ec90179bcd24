"""Planning of the profiles lane: levels, consolidation, retention and policies."""
