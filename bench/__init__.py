"""Benchmarks: ratios, not times."""
