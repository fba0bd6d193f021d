"""What a store holds of runs: found, checked, cleared of garbage, and taken as the start of other work."""
