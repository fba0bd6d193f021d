"""Programs that run while a block does."""

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Self


class Running:
    """What a subclass starts runs until the block ends, each program with its log in the folder.

    Args:
        folder: for logs, and what the programs keep.
        programs: where the programs are; they find each other there.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self._programs = folder, programs
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as ending:
            self._start(ending)
            self._ending = ending.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def _start(self, ending: ExitStack) -> None:
        raise NotImplementedError

    def _run(self, ending: ExitStack, program: str, *flags: str) -> None:
        log = ending.enter_context((self.folder / f"{program}.log").open("w"))
        environment = {**os.environ, "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}"}
        command = [self._programs / program, *flags]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.folder)
        ending.callback(process.wait)
        ending.callback(process.kill)
