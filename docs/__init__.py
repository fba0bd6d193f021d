"""Pages of the documentation, and in ``tools`` what makes some of them."""
