"""Programs become verdicts: each runs confined in a process of its own, and is judged outside of it.

Nothing here but ``judge`` and ``sandbox``, which are the worker's, may hold a gold answer: ``launcher`` is the program of
a clean process, and ``confine``, ``play`` and ``values`` are what the processes that it forks bring along.
"""
