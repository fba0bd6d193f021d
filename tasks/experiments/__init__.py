"""Comparisons of runs: the laboratory, and reproductions over models, systems and seeds, with statistics."""
