"""Virtual time: the shipped planner and scheduler at fleet scale, with everything that can go wrong, checked each step.

A history is a seed. ``histories`` runs many and shrinks what fails; ``sizing`` answers how many workers a load needs.
"""
