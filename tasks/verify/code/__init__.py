"""Judge of programs: a program runs confined in its own process, and another process compares its output.

The worker, which knows the expected output, uses ``judge`` and ``gold``. The process that starts programs uses
``launcher`` and ``confine``.
"""
