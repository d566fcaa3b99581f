"""What a storage worker prints as it ends goes to a log, with words of its user: one line."""

import pytest

from everstep_agent.storage.worker import main


def test_an_error_with_line_ends_and_escapes_is_one_printable_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = ValueError("x\neverstep-agent: raised XidFatal\x1b[2J\u202e")
    main._tell_in_one_line(ValueError, error, None)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    assert "raised XidFatal" in line
