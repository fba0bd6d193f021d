"""What a process that runs steps needs: log, progress, SIGTERM, engines that stay loaded, notes of its code."""
