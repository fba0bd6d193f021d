"""What a run takes on a cluster, before it starts: a small model of pods, seconds, bytes and prices."""
