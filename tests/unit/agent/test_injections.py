"""Faults on purpose: what readings become, and what findings say of them."""

from dataclasses import replace
from pathlib import Path

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.gpus.reading import ClockReason, GpuReading, GpusReading
from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.injections.effects import BESIDE_IT, ON_IT
from everstep_agent.injections.grammar import parse
from everstep_agent.injections.injector import Injector, Reach
from everstep_agent.injections.kernel_lines import InjectedLog
from everstep_agent.injections.memory import InjectionMemory, InjectionStatus, Unended
from everstep_agent.injections.running import Running, RunningInjections
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.ipc.processes import ProcessIdentity
from everstep_agent.probes.kernel.kernel_log import KernelBatch, Position
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_common.judging.findings import Finding, FindingKey, Severity
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown
from everstep_common.reports import InjectionState
from everstep_proto.generated import fleet_pb2

_PCI = "0000:3b:00.0"
_S = 10**9


class _Node:
    """What runs on a node at a time that the test sets."""

    def __init__(self) -> None:
        self.now_ns = 1000 * _S
        self.injections = RunningInjections(lambda: self.now_ns)

    def inject(self, text: str) -> None:
        self.injections.running[text] = Running(text, parse(text), self.now_ns)


def _gpu() -> GpuReading:
    return GpuReading(
        index=0, uuid="GPU-1", name="H100", pci=_PCI, ecc_corrected=3, ecc_corrected_aggregate=70
    )


def test_a_gpu_reads_as_it_would_with_the_fault_and_others_as_they_are() -> None:
    node = _Node()
    for text in ("ecc:corrected=1000/s", "temperature:95", "throttle:power_brake"):
        node.inject(f"{text}@{_PCI}")
    node.now_ns += 2 * _S
    other = replace(_gpu(), pci="0000:5e:00.0")
    faulty, untouched = node.injections.gpus(GpusReading(gpus=(_gpu(), other))).gpus
    assert (faulty.ecc_corrected, faulty.ecc_corrected_aggregate) == (2003, 2070)
    assert faulty.temperature_c == 95
    assert faulty.throttled_by(ClockReason.POWER_BRAKE)
    assert untouched == other


def test_a_gpu_that_is_heated_has_less_left_to_its_limit() -> None:
    node = _Node()
    node.inject(f"temperature:95@{_PCI}")
    cool = replace(_gpu(), temperature_c=40.0, thermal_margin_c=47)
    (hot,) = node.injections.gpus(GpusReading(gpus=(cool,))).gpus
    assert (hot.temperature_c, hot.thermal_margin_c) == (95.0, -8)


def test_nothing_is_touched_while_nothing_is_injected() -> None:
    node = _Node()
    reading, links = GpusReading(gpus=(_gpu(),)), (_link("mlx5_0/1"),)
    assert node.injections.gpus(reading) is reading
    assert node.injections.links(links) is links
    assert node.injections.counters(()) == ()


def _link(name: str) -> LinkReading:
    return LinkReading(name=name, kind="infiniband", up=True, speed_bits_per_s=400 * _S)


def test_a_link_reads_as_down_and_counts_errors() -> None:
    node = _Node()
    node.inject("link-down:mlx5_0/1")
    node.inject("link-errors:mlx5_1/1=symbol_error:200")
    down, fine = node.injections.links((_link("mlx5_0/1"), _link("mlx5_1/1")))
    assert (down.up, down.speed_bits_per_s) == (False, 0)
    assert fine.up
    node.now_ns += 3 * _S
    counters = (
        CountersReading(link="mlx5_0/1", values={"symbol_error": 7}),
        CountersReading(link="mlx5_1/1", values={"symbol_error": 7, "x": 1}),
    )
    same, grown = node.injections.counters(counters)
    assert same == counters[0]
    assert grown.values == {"symbol_error": 607, "x": 1}


def _faulty(
    component: str = f"gpu/{_PCI}", condition: str = "GpuLost", *, injected: bool = False
) -> Faulty:
    return Faulty(
        Finding(
            component=component,
            condition=condition,
            severity=Severity.FATAL,
            message="it is faulty",
            injected=injected,
        )
    )


def _marked(
    node: _Node, *said: Judgement, held: tuple[Finding, ...] = (), source: str = "nvml"
) -> list[Judgement]:
    return list(node.injections.marked(source, said, {finding.key: finding for finding in held}))


def test_what_an_injection_causes_says_so_and_what_it_does_not_cause_does_not() -> None:
    node = _Node()
    node.inject(f"lost@{_PCI}")
    others = [_faulty("gpu/0000:5e:00.0"), _faulty(condition="GpuEccUncorrected")]
    caused, *real = _marked(node, _faulty(), *others)
    assert isinstance(caused, Faulty)
    assert caused.finding.injected
    assert real == others


def test_the_conditions_that_injections_may_cause_exist() -> None:
    named = set().union(*ON_IT.values(), *BESIDE_IT.values())
    assert named <= set(CONDITIONS)


def test_a_fault_that_was_there_before_stays_real() -> None:
    node = _Node()
    node.inject(f"lost@{_PCI}")
    assert _marked(node, _faulty(), held=(_faulty().finding,)) == [_faulty()]


def test_what_was_caused_is_over_with_its_cause_and_by_its_own_source() -> None:
    node = _Node()
    node.inject("xid:79@0000:3b:00.0")
    line = _faulty(condition="XidFatal", injected=True)
    (said,) = _marked(node, line, source="kernel_log")
    assert said == line
    held = (line.finding,)
    assert _marked(node, source="kernel_log", held=held) == []
    node.injections.end("xid:79@0000:3b:00.0")
    assert _marked(node, source="nvml", held=held) == []
    _, *over = _marked(node, Unknown(line.key, "no reboot"), source="kernel_log", held=held)
    assert set(over) == {Healthy(line.key, "the injection that caused it is over")}
    assert len(over) == CONDITIONS["XidFatal"].clear_after
    # It is said until the book has closed it, and never of a fault that is real.
    assert _marked(node, source="kernel_log", held=()) == []
    real = (replace(line.finding, injected=False),)
    assert _marked(node, source="kernel_log", held=real) == []


def test_the_end_of_an_injection_does_not_end_what_the_next_one_causes() -> None:
    node = _Node()
    line = _faulty(condition="XidFatal", injected=True)
    for name in ("xid:79@0000:3b:00.0", "xid:48@0000:3b:00.0"):
        node.inject(name)
        assert _marked(node, line, source="kernel_log") == [line]
        assert _marked(node, source="kernel_log", held=(line.finding,)) == []
        node.injections.end(name)
        assert _marked(node, source="kernel_log", held=(line.finding,))


def test_a_line_that_is_read_after_its_injection_has_ended_is_over_as_well() -> None:
    node = _Node()
    node.inject("xid:79@0000:3b:00.0")
    node.injections.end("xid:79@0000:3b:00.0")
    line = _faulty(condition="XidFatal", injected=True)
    assert _marked(node, line, source="kernel_log") == [line]
    said = _marked(node, source="kernel_log", held=(line.finding,))
    assert set(said) == {Healthy(line.key, "the injection that caused it is over")}
    # What somebody else writes into the kernel log later is none of ours.
    node.now_ns += 3600 * _S
    other = _faulty("gpu/0000:5e:00.0", "XidFatal", injected=True)
    _marked(node, other, source="kernel_log")
    assert _marked(node, source="kernel_log", held=(other.finding,)) == []


def test_what_lingers_in_a_window_is_no_real_fault_until_it_lasts() -> None:
    node = _Node()
    node.inject(f"lost@{_PCI}")
    _marked(node, _faulty())
    node.injections.end(f"lost@{_PCI}")
    node.now_ns += 60 * _S
    (lingering,) = _marked(node, _faulty(), held=(_faulty(injected=True).finding,))
    assert isinstance(lingering, Faulty)
    assert lingering.finding.injected
    node.now_ns += 900 * _S
    assert _marked(node, _faulty(), held=(_faulty(injected=True).finding,)) == [_faulty()]


def test_an_injected_finding_becomes_real_with_the_first_real_reading_and_never_back() -> None:
    book, now = FindingBook(CONDITIONS), Stamp("boot-1", 3600 * _S, 1)
    for _ in range(CONDITIONS["GpuLost"].raise_after):
        book.enter_judgements([_faulty(injected=True)], now)
    assert [known.finding.injected for known in book.open_findings] == [True]
    changes = book.enter_judgements([_faulty()], now)
    assert [known.finding.injected for known in changes.raised] == [False]
    assert not book.enter_judgements([_faulty(injected=True)], now).raised
    assert [known.finding.injected for known in book.open_findings] == [False]


def test_an_agent_that_was_killed_leaves_word_of_what_it_did() -> None:
    notes = ["{}"]
    memory = InjectionMemory(notes[-1], notes.append)
    memory.note_answer("n/inject/1", InjectionStatus(InjectionState.ACTIVE, "done"))
    left = Unended(
        caused=(FindingKey(f"gpu/{_PCI}", "GpuLost"),),
        counters=f"gpu/{_PCI}/",
        stopped=(ProcessIdentity(4711, 17),),
    )
    memory.note_unended({"n/inject/1": left})
    successor = InjectionMemory(notes[-1], notes.append)
    assert successor.unended == {"n/inject/1": left}
    assert successor.answers["n/inject/1"].message == "done"
    successor.note_answer("n/inject/1", InjectionStatus(InjectionState.ENDED, "restarted"))
    assert InjectionMemory(notes[-1], notes.append).unended == {}
    assert InjectionMemory("nonsense", notes.append).answers == {}


def test_only_so_many_answers_are_remembered() -> None:
    memory = InjectionMemory("{}", lambda _: None)
    for number in range(150):
        memory.note_answer(f"n/inject/{number}", InjectionStatus(InjectionState.ENDED, "over"))
    assert len(memory.answers) == 100
    assert "n/inject/149" in memory.answers


class _NoLog:
    """A kernel log without lines."""

    @property
    def position(self) -> Position:
        return Position()

    def drain(self) -> KernelBatch:
        return KernelBatch()

    def descriptor(self) -> int | None:
        return None

    def has_news(self) -> bool:
        return True


def test_a_line_stands_beside_a_log_that_is_not_the_kernels_own(tmp_path: Path) -> None:
    file = tmp_path / "kernel.log"
    file.touch()
    log, woken = InjectedLog(_NoLog(), file), []
    log.wake = lambda: woken.append(True)
    assert log.add("a line", boot_ns=7) == (
        "a line beside the kernel log, which this agent may not write"
    )
    assert woken == [True]
    (line,) = log.drain().lines
    assert (line.text, line.injected, line.boot_ns) == ("a line", True, 7)
    assert log.drain().lines == ()
    assert file.read_text(encoding="ascii") == ""


def test_a_counter_that_a_link_does_not_have_is_refused_with_those_that_it_has() -> None:
    view = NodeView(
        links=(_link("mlx5_0/1"),),
        port_counters=(CountersReading(link="mlx5_0/1", values={"symbol_error": 0}),),
    )
    told: list[fleet_pb2.Record] = []
    node = _Node()
    reach = Reach(
        view=view,
        kernel_log=InjectedLog(_NoLog(), Path("/nowhere")),
        counters=Counters(),
        boot_ns=lambda: node.now_ns,
        driver_pids=tuple,
        training_pids=tuple,
        look_soon=lambda: None,
    )
    memory = InjectionMemory("{}", lambda _: None)
    injector = Injector(node.injections, reach, memory, told.append, allowed=True)
    injector.order("n/1", "link-errors:mlx5_0/1=simbol_error:5", 60)
    (answer,) = [record.injection_changed for record in told]
    assert answer.state == fleet_pb2.INJECTION_STATE_REFUSED
    assert answer.message == (
        "there is no counter of mlx5_0/1 named simbol_error here; this node has: symbol_error"
    )
    assert node.injections.running == {}
