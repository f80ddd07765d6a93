"""What the metadata log means. Pure."""
