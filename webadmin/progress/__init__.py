"""Rates of the schedule, counted from its log, and recommendations derived from them."""
