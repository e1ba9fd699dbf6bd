"""What to do where one Gaussian of everything is not enough."""
