"""Reports: one HTML page and a short summary from the artifacts of a run."""
