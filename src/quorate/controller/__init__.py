"""Decisions of the active controller: a request and the image of the cluster become records and a reply."""
