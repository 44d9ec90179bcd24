"""Deterministic simulation of the shipped planner and scheduler at fleet scale, with faults, checked after each step.

A history is determined by its seed. ``histories`` runs many and minimises failures; ``sizing`` computes the number of
workers for a load. ``memory`` holds the schedule and index, ``environment`` workers, writers and faults, ``checks`` the
invariants.
"""
