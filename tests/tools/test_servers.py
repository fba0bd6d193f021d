"""A server that a test starts: one that ends at once is told without a wait."""

import subprocess
import sys

import pytest

from tools.s3 import free_port, wait_until_open


def test_a_server_that_ends_is_named_with_its_status() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "exit(3)"]) as process,
        pytest.raises(RuntimeError, match=r"a server ended \(3\): start it in a terminal .* -c 'exit\(3\)'"),
    ):
        wait_until_open(process, free_port())
