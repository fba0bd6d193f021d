"""Comparisons with TRL's GRPOTrainer, which is installed in `.venv-bench`."""
