"""A NumPyro model and its data as one log density on R^D."""
