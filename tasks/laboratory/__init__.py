"""Which runs answer the laboratory's questions, and what their results say."""
