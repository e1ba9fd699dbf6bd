"""What everything else stands on, and that knows no model: errors, checks, tables, estimates, JAX's programs."""
