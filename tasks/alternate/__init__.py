"""Near-on-policy training: generation and optimization alternate inside one task."""
