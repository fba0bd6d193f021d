"""What a run takes on a cluster (plan), and whether it can start there (preflight)."""
