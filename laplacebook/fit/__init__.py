"""``laplace`` and its sisters, and the approximation that they return."""
