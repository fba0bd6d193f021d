"""Runs in a store: to find, record, check and delete them, and to start other work from them."""
