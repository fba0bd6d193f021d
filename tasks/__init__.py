"""One folder per step of the graph: task.py is its door, everything beside it is plain Python."""
