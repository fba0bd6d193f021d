"""Judges programs: each runs confined in a process of its own, and its output is compared outside of it.

``judge``, ``gold``, ``compare`` and ``sandbox`` are the worker's, which knows what is expected. ``launcher`` is the
program of a clean process, and ``confine``, ``play`` and ``values`` are what the processes that it forks bring along.
"""
