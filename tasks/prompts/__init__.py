"""A dataset becomes ordered prompt sets."""
