"""Find the mode, certify it, or say why there is none."""
