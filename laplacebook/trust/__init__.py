"""Can a fit be trusted? Facts, a verdict and a picture."""
