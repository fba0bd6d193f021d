"""Judges programs: each runs confined in a process of its own, and its output is compared outside of it.

``judge`` and ``gold`` are the worker's, which knows what is expected. ``launcher`` and ``confine`` are what a clean
process, and those that it forks, bring along.
"""
