"""The base policy: loaded, or made and warm-started here."""
