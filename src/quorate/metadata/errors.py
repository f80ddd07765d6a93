"""What is wrong with a metadata log."""

__all__ = ["ImageError"]


class ImageError(Exception):
    """A record that cannot be applied. Whoever meets one has another log than the others, and must stop."""
