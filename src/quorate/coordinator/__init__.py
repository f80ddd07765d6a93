"""Groups and transactions: their state is a fold over their own log. Pure."""
