"""Comparisons of runs: the laboratory, and models x systems x seeds with statistics, figures and one page."""
