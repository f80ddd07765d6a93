"""Agreement on one log. Pure."""
