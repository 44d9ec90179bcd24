"""Benchmarks, one module each, run by ``./dev bench``; fixed seeds, figures with the unit in their name."""
