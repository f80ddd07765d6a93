"""A process: configuration, roles, assembly, start, stop."""
