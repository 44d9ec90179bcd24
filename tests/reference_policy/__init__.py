"""The planner and scheduler rules of the system that inspired the profiles lane, its weaknesses included.

They are not shipped. The scenario files run them beside ours, so that every deviation is a decision.
"""
