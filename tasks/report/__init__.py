"""A run's artifacts become one HTML page and a short summary."""
