"""The schedule over HTTP: the worker protocol, and the actions of operators."""
