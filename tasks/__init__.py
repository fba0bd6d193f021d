"""One folder per step, and folders for what steps share. Only flyte/ turns steps into Flyte tasks."""

import os

# Threads that wait for each other by spinning starve when another process wants a core: a training step then takes ten
# times as long. It must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
