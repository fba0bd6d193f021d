"""Plan what a run takes on a cluster, and check that it can start there (preflight)."""
