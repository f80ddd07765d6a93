"""Clusters for tests, laptops and demonstrations: planned, launched, looked at, and broken on purpose."""
