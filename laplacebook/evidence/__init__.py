"""The evidence in other ways, compared, and maximised."""
