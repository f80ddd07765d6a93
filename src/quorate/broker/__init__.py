"""Serving data: what a broker is to the cluster, and what it does with its replicas."""
