"""Who died first, as a terminal shows it."""

import io

from rich.console import Console

from everstep_cli.views.deaths import death_lists
from everstep_proto.generated import admin_pb2


def shown(*incidents: admin_pb2.Incident, width: int = 200) -> str:
    """Return what a terminal shows, by default a wide one."""
    console = Console(file=io.StringIO(), width=width)
    for part in death_lists(incidents):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_each_death_is_a_line_with_signal_or_code() -> None:
    incident = admin_pb2.Incident(
        incident="llama-3",
        deaths=[
            admin_pb2.RankDeath(
                rank=17, node="node-2", generation=4, signal=9, kind="host_memory", step=810,
                said="the kernel killed it because memory ran out",
            ),
            admin_pb2.RankDeath(
                rank=3, node="node-1", generation=4, signal=11, kind="crash",
                core_dumped=True, core_file="/tmp/core.77",
            ),
            admin_pb2.RankDeath(rank=1, node="node-1", generation=4, exit_code=3, signal=0),
            admin_pb2.RankDeath(rank=2, node="node-1", generation=4, signal=40, core_dumped=True),
        ],
    )  # fmt: skip
    text = shown(incident)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "who died first in llama-3" in lines
    assert any(line.endswith("17 node-2 4 810 SIGKILL host memory") for line in lines)
    assert "rank 17 the kernel killed it because memory ran out" in lines
    assert any(line.endswith("3 node-1 4 - SIGSEGV crash") for line in lines)
    assert "rank 3 core dumped: /tmp/core.77" in lines
    assert any(line.endswith("1 node-1 4 - exit 3 -") for line in lines)
    assert any("signal 40" in line for line in lines)
    assert "rank 2 core dumped: where, is not known" in lines


def test_what_many_ranks_said_is_read_once_and_fits_into_a_narrow_terminal() -> None:
    said = "RuntimeError: [gloo/gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 5000ms"
    deaths = [
        admin_pb2.RankDeath(
            rank=rank, node="n", exit_code=1, kind="collective_timeout", said=said, generation=one
        )
        for rank in (2, 0)
        for one in (1, 2)
    ]
    text = shown(admin_pb2.Incident(incident="j-1", deaths=deaths), width=80)
    assert text.count("waiting 5000ms") == 1
    assert len(text.splitlines()) <= 11
    assert "ranks 0,2  RuntimeError: [gloo" in text


def test_who_gave_up_waiting_is_not_among_those_that_died_first() -> None:
    gave_up = admin_pb2.RankDeath(rank=1, node="n", exit_code=1, kind="collective_timeout")
    killed = admin_pb2.RankDeath(rank=2, node="n", signal=9, kind="killed")
    text = shown(admin_pb2.Incident(incident="j-1", deaths=[gave_up]))
    assert "who gave up waiting in j-1" in text
    assert "died first" not in text
    text = shown(admin_pb2.Incident(incident="j-1", deaths=[killed, gave_up]))
    assert text.index("who died first") < text.index("SIGKILL") < text.index("who gave up")


def test_what_the_kernel_holds_is_a_sentence_of_its_own() -> None:
    held = admin_pb2.Incident(incident="llama-4", left_behind=["generation 4 on node-2 was left"])
    assert "generation 4 on node-2 was left" in shown(held)


def test_only_the_newest_incidents_with_deaths_are_shown() -> None:
    death = admin_pb2.RankDeath(rank=1, node="n")
    incidents = [admin_pb2.Incident(incident=f"j-{n}", deaths=[death]) for n in range(5)]
    text = shown(*incidents, admin_pb2.Incident(incident="j-5"))
    assert [f"in j-{n}" in text for n in range(6)] == [False, False, True, True, True, False]
    assert shown(admin_pb2.Incident(incident="j-5")) == ""
