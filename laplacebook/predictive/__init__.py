"""What a fit says of new data."""
