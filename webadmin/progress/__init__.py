"""How fast the schedule moves, counted from its log, and what operators conclude from that."""
