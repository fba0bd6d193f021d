"""Commands side by side: each has its own exit code and log, and a failure starts no more."""

from pathlib import Path

from tasks.experiments.spread import Command, ended


def test_every_command_is_told_its_own_exit_code(tmp_path: Path) -> None:
    commands = [Command(str(one), ["--help"], tmp_path / f"{one}.txt") for one in range(24)]
    found = list(ended(commands, jobs=8))
    assert sorted(command.name for command, _ in found) == sorted(command.name for command in commands)
    assert {code for _, code in found} == {0}
    assert all(command.log and "Usage" in command.log.read_text() for command in commands)


def test_after_a_failure_no_more_are_started(tmp_path: Path) -> None:
    wrong = Command("wrong", ["--no-such-option"], tmp_path / "wrong.txt")
    others = [Command(str(one), ["--help"], tmp_path / f"{one}.txt") for one in range(5)]
    found = {command.name: code for command, code in ended([others[0], wrong, *others[1:]], jobs=1)}
    assert found == {"0": 0, "wrong": 2}
    assert "--no-such-option" in (tmp_path / "wrong.txt").read_text()
    assert not (tmp_path / "1.txt").exists()
