"""The mu-grpo command: what a run will do, what it made, and how runs compare."""
