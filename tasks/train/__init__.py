"""Training: advantages, the objective, the loop over updates, and the backends that hold the weights."""
