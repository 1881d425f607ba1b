"""Full coverage: every entry of the Jacobian."""
