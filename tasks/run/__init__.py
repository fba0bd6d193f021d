"""The first and the last step of a run: settings are resolved and checked, results are summarised."""
