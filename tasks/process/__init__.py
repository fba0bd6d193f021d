"""Services of a process that runs steps: log, progress bars, SIGTERM, resident engines, provenance."""
