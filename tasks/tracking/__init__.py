"""Numbers of a run, shown in wandb or TensorBoard while it goes on."""
