"""Benchmarks: everybody in one process, run in turn, medians and ratios, and whether the answers are equal."""
