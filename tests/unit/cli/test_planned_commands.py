"""Planned work at the command line: what is asked, and what is refused before it is asked."""

from fakes.cli_admin import FakeAdmin
from unit.cli.test_commands import call


def test_a_drain_tells_what_becomes_of_each_job() -> None:
    admin = FakeAdmin()
    assert call("drain", "node-1", admin=admin)[0] == 2
    code, drawn = call("drain", "node-1", "--reason", "fan", admin=admin)
    assert code == 0
    assert "demo goes on without node-1 after step 9" in drawn
    assert admin.told == [("drain", "node-1", "fan")]


def test_a_restart_needs_a_reason_and_may_name_a_step() -> None:
    admin = FakeAdmin()
    assert call("job", "demo", "restart", admin=admin)[0] == 2
    assert call("job", "demo", "--at-step", "9", admin=admin)[0] == 2
    assert call("job", "demo", "restart", "--at-step", "-1", "--reason", "x", admin=admin)[0] == 2
    assert call("job", "demo", "restart", "--at-step", "9", "--reason", "code", admin=admin)[0] == 0
    assert call("job", "demo", "restart", "--reason", "code", admin=admin)[0] == 0
    assert admin.told == [("restart", "demo", "9", "code"), ("restart", "demo", "None", "code")]
