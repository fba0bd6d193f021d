"""A whole training run in one task, evaluated along the way: the unit of the laboratory."""
