"""Precision matrices by what can be done with them, and the laws of multivariate normals."""
