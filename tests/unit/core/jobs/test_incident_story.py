"""What an incident keeps: the first deaths in order, and what the kernel did not let go."""

import json
from dataclasses import replace

from everstep_common import reports
from everstep_controller.api.admin.messages import fleet_messages as messages
from everstep_controller.core import events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.fleet.incidents import incidents_of_job, keep_incident
from everstep_controller.core.jobs import incidents
from everstep_controller.core.model.incident import Death
from everstep_controller.core.model.job import JobIncident, JobState
from everstep_controller.core.model.state import State
from everstep_controller.journal import codec
from unit.core.recovery.test_blame import Incidents
from unit.core.test_decisions import S


def started() -> Incidents:
    """Return a job of two nodes that runs."""
    story = Incidents()
    story.run()
    return story


def incident(story: Incidents) -> JobIncident:
    """Return the newest incident."""
    return story.incidents[-1]


def stop(
    story: Incidents, *, devices: dict[str, str] | None = None, **abandoned: tuple[int, ...]
) -> None:
    """The members stop the generation; some leave processes behind, or memory of a device."""
    for node in tuple(story.job.generation.members):
        story.tell(
            events.Reported(
                story.origin(node),
                story.now_ns,
                reports.GenerationStopped(
                    story.job.generation.number,
                    1234,
                    abandoned=abandoned.get(node, ()),
                    held_devices=tuple((devices or {}).get(node, "").split()),
                ),
                "j",
            )
        )


def test_deaths_are_kept_in_the_order_in_which_ranks_died_whoever_was_told_of_first() -> None:
    story = started()
    story.die("n0", "collective", rank=0)
    story.die("n1", "exception", exception="ValueError: bad", rank=1, ago_ns=S)
    told = [
        (death.exit.rank, death.exit.kind, death.exit.exception) for death in incident(story).deaths
    ]
    assert told == [(1, "exception", "ValueError: bad"), (0, "collective", "")]


def test_the_first_eight_are_kept_and_little_of_what_they_said() -> None:
    story = started()
    for rank in range(20):
        story.die("n0", "exception", exception="x" * 900, rank=rank, ago_ns=rank * S)
    kept = incident(story).deaths
    assert [death.exit.rank for death in kept] == list(range(19, 11, -1))
    assert {len(death.exit.exception) for death in kept} == {200}


def test_an_incident_that_is_over_still_tells_who_died() -> None:
    story = started()
    story.die("n0", "killed", rank=0)
    stop(story)
    story.choose(None)
    story.progress(3)
    assert story.open_incident is None
    assert [death.exit.rank for death in incident(story).deaths] == [0]
    (told,) = messages.job_detail(story.core.state, story.job, story.now_ns).incidents
    assert [(death.rank, death.node, death.kind) for death in told.deaths] == [(0, "n0", "killed")]


def test_incidents_of_long_ago_keep_no_deaths() -> None:
    story = started()
    story.die("n0", "killed", rank=0)
    first = incident(story)
    death = first.deaths[0]
    for number in range(2, 60):
        later = replace(first, id=f"j-{number}", deaths=[])
        keep_incident(story.core.state, story.job, later)
        incidents.keep_death(story.core.state, story.job, death)
    kept = [bool(one.deaths) for one in story.incidents]
    assert kept == [False] * 27 + [True] * 32


def test_what_the_kernel_holds_is_in_the_incident_and_told_once() -> None:
    story = started()
    story.die("n0", "killed", rank=0)
    stop(story, n1=(70, 71))
    (sentence,) = incident(story).left_behind
    assert "generation 1 on n1" in sentence
    assert "70, 71" in sentence
    again = events.Reported(
        story.origin("n1"),
        story.now_ns,
        reports.GenerationStopped(1, 1234, abandoned=(70, 71)),
        "j",
    )
    story.tell(again)
    assert incident(story).left_behind == [sentence]


def test_a_spare_takes_the_place_of_a_node_that_holds_processes() -> None:
    story = started()
    story.join("n2")
    story.die("n0", "killed", rank=0)
    stop(story, n1=(70,))
    assert story.job.generation.members == ["n0", "n2"]


def test_so_it_does_of_a_node_whose_device_memory_does_not_become_free() -> None:
    story = started()
    story.join("n2")
    story.die("n0", "killed", rank=0)
    stop(story, devices={"n1": "gpu/0000:3b:00.0"})
    assert story.job.generation.members == ["n0", "n2"]
    (sentence,) = incident(story).left_behind
    assert "generation 1 on n1 are gone" in sentence
    assert "gpu/0000:3b:00.0" in sentence


def test_without_a_spare_the_job_goes_on_where_device_memory_is_in_use() -> None:
    story = started()
    story.die("n0", "killed", rank=0)
    stop(story, devices={"n1": "gpu/0000:3b:00.0"})
    assert story.job.generation.members == ["n0", "n1"]
    assert story.job.state is not JobState.WAITING_CAPACITY


def test_without_a_spare_the_node_that_holds_processes_goes_on() -> None:
    story = started()
    story.die("n0", "killed", rank=0)
    stop(story, n1=(70,))
    assert story.job.generation.members == ["n0", "n1"]
    assert story.job.state is not JobState.WAITING_CAPACITY


def test_only_the_next_plan_avoids_it() -> None:
    story = started()
    story.join("n2")
    story.die("n0", "killed", rank=0)
    stop(story, n1=(70,))
    story.choose(None)
    assert story.job.generation.members == ["n0", "n2"]
    story.die("n2", "killed", rank=1)
    stop(story, n2=(80,))
    story.tell(events.TimerDue(f"backoff/{story.job.id}"), after_s=5)
    assert story.job.generation.members == ["n0", "n1"]


def _older(value: object) -> object:
    """Return a state as a version wrote it that knew none of this."""
    if isinstance(value, dict):
        new = {"deaths", "left_behind", "holds_generation", "core_file"}
        kept = value.keys() - (new if "onset_ns" in value else new - {"deaths"})
        return {key: _older(value[key]) for key in value if key in kept}
    return [_older(one) for one in value] if isinstance(value, list) else value


def test_the_state_of_an_older_version_is_read_and_goes_on() -> None:
    story = started()
    story.join("n2")
    story.die("n0", "killed", rank=0)
    body = _older(json.loads(codec.encode(story.core.state)))
    state = codec.decode_state(json.dumps(body).encode())
    assert incidents_of_job(state, state.newest("j"))[-1].deaths == []
    story.core = Core(state)
    stop(story, n1=(70,))
    assert story.job.generation.members == ["n0", "n2"]


def test_the_state_with_all_of_it_is_the_same_after_it_was_written_down() -> None:
    story = started()
    story.die("n0", "killed", rank=0)
    stop(story, n1=(70,))
    state: State = codec.decode_state(codec.encode(story.core.state))
    assert state == story.core.state
    assert isinstance(incidents_of_job(state, state.newest("j"))[-1].deaths[0], Death)
