"""Prompts of training sets and benchmarks, from files, the Hugging Face hub or generated arithmetic."""
