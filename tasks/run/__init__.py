"""The record of a finished run, by which it can be made again."""
