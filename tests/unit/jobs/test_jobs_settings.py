"""The table [jobs]: its defaults work, and its mistakes are told together."""

from pathlib import Path

from everstep_agent.jobs.state.settings import JobsSettings, default_runtime_folder
from everstep_common.config import document
from fakes.settings_files import mistakes_in


def test_the_defaults_have_no_problem_and_every_key_is_documented() -> None:
    assert JobsSettings().problems() == []
    assert all(doc.help for doc in document(JobsSettings))


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    wrong = (
        "[jobs]\nslots_per_rank = 1\nbulk_port = 99999\nslot_wait_s = 0\n"
        f'bulk_host = "0.0.0.0"\nsocket = "/{"x" * 200}"\n'
    )
    found = {problem.split(":")[0] for problem in mistakes_in(tmp_path, wrong)}
    named = {"slots_per_rank", "bulk_port", "slot_wait_s", "bulk_advertise_host", "socket"}
    assert {f"jobs.{name}" for name in named} <= found


def test_root_and_users_have_their_own_folders() -> None:
    assert default_runtime_folder({}, 0) == Path("/run/everstep-agent")
    environ = {"XDG_RUNTIME_DIR": "/run/user/7"}
    assert default_runtime_folder(environ, 7) == Path("/run/user/7/everstep-agent")
    assert default_runtime_folder({"HOME": "/home/a"}, 7).is_relative_to("/home/a")
