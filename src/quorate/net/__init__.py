"""Connections: the server's end of them, and the client's."""
