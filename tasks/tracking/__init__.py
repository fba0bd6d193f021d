"""Numbers of a run in wandb or TensorBoard while it goes on."""
