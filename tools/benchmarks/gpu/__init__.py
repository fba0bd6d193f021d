"""Benchmarks of training and generation on one device, with random models and rollouts, so that nothing is loaded."""
