"""The ``mu-grpo`` command, which plans, starts, inspects and compares runs."""
