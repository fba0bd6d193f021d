"""The runs of a store: find, record, check and continue them, and delete what none of them needs."""
