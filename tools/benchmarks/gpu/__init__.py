"""Training and generation on one device, with models and rollouts made here: torch and transformers are enough."""
