"""Answers from stored profiles: which datasets to open, which rows count, what their stacks say."""

from engine.profiles.query.top_functions import FunctionValue, QueryStatistics, TopFunctions, Visible, top_functions

__all__ = ["FunctionValue", "QueryStatistics", "TopFunctions", "Visible", "top_functions"]
