"""Programs as answers: each runs confined in a process of its own, and its output is compared outside of it.

``judge`` and ``gold`` run in the worker, which knows the expected outputs. ``launcher`` and ``confine`` run in a clean
process and in the processes that it forks.
"""
