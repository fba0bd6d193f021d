"""Judges programs: each runs confined in a process of its own, and its output is compared outside of it.

``judge`` and ``gold`` are the worker's, which knows what is expected. ``launcher`` is the program of a clean process,
and ``confine`` and ``play`` are what the processes that it forks bring along.
"""
