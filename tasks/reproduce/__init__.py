"""Runs of several models, systems and seeds, compared: statistics, figures and one page."""
