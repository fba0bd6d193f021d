"""The trainer beside TRL's GRPOTrainer, which `.venv-bench` has."""
