"""Maintenance at the command line: how times are typed, what is shown, what is refused."""

import pytest

from everstep_cli.client.times import RequestedTime, TimeError, parse_duration_ns, parse_time
from fakes.cli_admin import FakeAdmin
from unit.cli.test_commands import call

_S = 1_000_000_000
_ADD = ("maintenance", "add", "node-1")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("now", RequestedTime(None)),
        ("in 2h", RequestedTime(None, 7200 * _S)),
        ("In 1h 30m", RequestedTime(None, 5400 * _S)),
        ("1970-01-01T01:00", RequestedTime(3600 * _S)),
        ("1970-01-01T01:00Z", RequestedTime(3600 * _S)),
        ("1970-01-01 02:00:00+01:00", RequestedTime(3600 * _S)),
    ],
)
def test_a_time_is_counted_from_now_or_of_the_calendar_in_utc(
    text: str, found: RequestedTime
) -> None:
    assert parse_time(text) == found


@pytest.mark.parametrize(
    "text",
    ["", "2h", "in", "in 2", "tomorrow", "in -2h", "2026-13-01T00:00", "9999-12-31", "0001-01-01"],
)
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(TimeError, match="say "):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("45m", 2700), ("1h 30m", 5400), ("1d", 86_400), ("0.5h", 1800)]
)
def test_a_length_of_time_is_made_of_parts(text: str, seconds: int) -> None:
    assert parse_duration_ns(text) == seconds * _S


def test_a_time_before_now_is_called_past_and_not_misspelt() -> None:
    for text in ("in -2h", "in - 2h"):
        with pytest.raises(TimeError, match="is past; say now, or 'in 2h'"):
            parse_time(text)


@pytest.mark.parametrize("text", ["9999999999d", "1001d", "9" * 500 + "d"])
def test_a_length_beyond_all_reason_is_called_too_long_with_the_most(text: str) -> None:
    with pytest.raises(TimeError, match="is too long, the most is 1000d") as error:
        parse_duration_ns(text)
    assert len(str(error.value)) < 100


@pytest.mark.parametrize("text", ["", "0s", "10", "m", "1h x", "-2h", "1e3s", "٣h"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(TimeError, match="length of time"):
        parse_duration_ns(text)


def test_a_window_is_asked_for_and_what_it_does_is_told() -> None:
    admin = FakeAdmin()
    line = (*_ADD, "node-2", "--from", "in 2h", "--for", "1h", "--reason", "fans")
    code, drawn = call(*line, admin=admin)
    assert code == 0
    assert admin.told == [
        ("maintenance", "node-1", "node-2", str(7200 * _S), str(3600 * _S), "fans")
    ]
    assert "m-3: planned, node-[1-2]" in drawn
    assert "jobs begin to leave in 1 h 50 m" in drawn
    assert "demo goes on elsewhere" in drawn
    assert "will interrupt other: it has no spare" in drawn


def test_a_window_without_nodes_or_with_a_time_that_is_none_is_not_asked_for() -> None:
    admin = FakeAdmin()
    for line in (
        ("maintenance", "add", "--from", "now", "--for", "1h"),
        (*_ADD, "--for", "1h"),
        (*_ADD, "--from", "now"),
        (*_ADD, "--from", "soon", "--for", "1h"),
        (*_ADD, "--from", "now", "--for", "long"),
    ):
        assert call(*line, admin=admin)[0] == 2
    assert admin.told == []


def test_windows_are_listed_with_the_jobs_that_they_interrupt() -> None:
    code, drawn = call("maintenance", "list", "--all")
    assert code == 0
    for word in ("m-3", "planned", "node-[1-2]", "ann", "fans", "will interrupt other"):
        assert word in drawn
    assert "No maintenance is planned" in call("maintenance", "list")[1]


def test_a_cancelled_window_is_shown_without_what_it_would_have_done() -> None:
    admin = FakeAdmin()
    code, drawn = call("maintenance", "cancel", "m-3", admin=admin)
    assert code == 0
    assert admin.told == [("cancel", "m-3")]
    assert "cancelled by ann" in drawn
    assert "interrupt" not in drawn


def test_a_release_during_maintenance_names_the_command_that_ends_that() -> None:
    admin = FakeAdmin()
    assert "maintenance" not in call("release", "node-1", admin=admin)[1]
    admin.maintained = True
    code, drawn = call("release", "node-1", admin=admin)
    assert code == 0
    assert "everstep maintenance cancel m-3" in " ".join(drawn.split())


def test_the_help_teaches_how_a_window_goes(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("maintenance", "--help")[0] == 0
    drawn = capsys.readouterr().out
    for word in (
        "maintenance_drain_lead_s",
        "maintenance_stop_lead_s",
        "cancel m-3",
        "add gpu-0042",
    ):
        assert word in drawn
