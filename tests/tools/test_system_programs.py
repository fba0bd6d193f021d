"""A program that is not installed skips the tests that need it, or fails them in continuous integration."""

import pytest

from tools.system_programs import require


def test_a_missing_program_fails_in_continuous_integration_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, exception in (("true", pytest.fail.Exception), ("", pytest.skip.Exception)):
        monkeypatch.setenv("CI", value)
        with pytest.raises(exception, match="no-such-program is not installed"):
            require("no-such-program")
