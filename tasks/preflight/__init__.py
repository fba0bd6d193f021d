"""Whether a run can start on a cluster: what is asked of the API server, the store, the registry and Flyte."""
