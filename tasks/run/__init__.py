"""The two ends of a run: settings are resolved and checked, results are summarised."""
