"""Backends, which hold a policy's weights while it is trained: plain torch in one process, or DeepSpeed in several."""
