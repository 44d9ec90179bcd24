"""Benchmarks: a module each, run by ``./dev bench``; fixed seeds, figures with their unit in the name."""
