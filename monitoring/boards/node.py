"""Board of a node: what it is judged as, what its agent reads, and its devices.

Agents have no label for their node: Prometheus names them by `instance`, an address that begins
with the node's name.
"""

from boards.board import Board, Row
from boards.panels import Bars, Curves, Number, Query, Rows, States, Unit
from boards.states import coded, words
from everstep_controller.core.model.node import NodeState

_NODE = 'node="$node"'
_AGENT = 'instance=~"$node([.:].*)?"'
_STATES = list(NodeState)


def _of(series: str, more: str = "") -> str:
    return f"{series}{{{_AGENT}{more}}}"


_NOW = (
    States(
        title="State",
        text="What the controller judged it as when: 'everstep why NODE'.",
        queries=[Query(coded("everstep_node_state", _STATES, f"{_NODE},"), "{{node}}")],
        words=words(_STATES),
        width=16,
        height=4,
    ),
    Number(
        title="Open findings",
        text="As the controller knows them: 'everstep node NODE'.",
        queries=[Query(f"everstep_node_findings{{{_NODE}}}")],
        warn=1,
    ),
    Number(
        title="Claims",
        text="While somebody claims it, it takes no ranks.",
        queries=[Query(f"count(everstep_node_claim{{{_NODE}}}) or vector(0)")],
        warn=1,
    ),
    Rows(
        title="Findings that its agent has open",
        text="What they mean is in the reference of signals: docs/signals.md.",
        queries=[Query(_of("everstep_node_finding_open"))],
        labels=[("condition", "condition"), ("component", "component"), ("effect", "effect")],
        values=["open"],
        width=24,
    ),
)
_HOST = (
    Curves(
        title="Processor and memory",
        text="Share of processor time that was not idle, and of memory that is not available.",
        queries=[
            Query(_of("everstep_node_cpu_busy_ratio"), "processor"),
            Query(
                f"1 - {_of('everstep_node_memory_available_bytes')}"
                f" / {_of('everstep_node_memory_size_bytes')}",
                "memory",
            ),
        ],
        unit=Unit.RATIO,
    ),
    Curves(
        title="Network",
        text="All interfaces together.",
        queries=[
            Query(f"rate({_of('everstep_node_network_received_bytes_total')}[5m])", "received"),
            Query(f"rate({_of('everstep_node_network_sent_bytes_total')}[5m])", "sent"),
        ],
        unit=Unit.BYTES_PER_SECOND,
    ),
    Curves(
        title="File systems",
        text="How long each took to answer; one that hangs holds every rank that waits for it.",
        queries=[Query(_of("everstep_node_mount_response_seconds"), "{{mount}}")],
        unit=Unit.SECONDS,
    ),
    Curves(
        title="Memory of snapshots",
        text="What the agent gives to snapshots and replicas.",
        queries=[
            Query(_of("everstep_agent_vault_slot_bytes"), "slots of its ranks"),
            Query(_of("everstep_agent_vault_replica_bytes"), "replicas for others"),
        ],
        unit=Unit.BYTES,
        stacked=True,
    ),
)
_DEVICES = (
    Curves(
        title="GPU: temperature",
        text="One that is hotter than its neighbours is slower soon.",
        queries=[Query(_of("everstep_node_gpu_temperature_celsius"), "GPU {{gpu}}")],
        unit=Unit.CELSIUS,
    ),
    Curves(
        title="GPU: power",
        text="One that draws less than its neighbours waits, or is held down.",
        queries=[Query(_of("everstep_node_gpu_power_watts"), "GPU {{gpu}}")],
        unit=Unit.WATTS,
    ),
    Curves(
        title="GPU: held down",
        text="What holds the clocks down; thermal reasons are slowness.",
        queries=[Query(_of("everstep_node_gpu_clock_throttled"), "GPU {{gpu}}: {{reason}}")],
    ),
    Curves(
        title="GPU: errors in an hour",
        text="Memory errors, and packets that PCIe sent again.",
        queries=[
            Query(
                f"increase({_of('everstep_node_gpu_ecc_errors_total')}[1h])",
                "GPU {{gpu}}: ECC {{kind}}",
            ),
            Query(
                f"increase({_of('everstep_node_gpu_pcie_replays_total')}[1h])",
                "GPU {{gpu}}: PCIe replays",
            ),
            Query(f"increase({_of('everstep_node_xid_errors_total')}[1h])", "Xid {{xid}}"),
        ],
    ),
    Curves(
        title="Links",
        text="1 while a link is up.",
        queries=[
            Query(_of("everstep_node_link_up"), "{{link}}"),
            Query(f"min by (gpu) ({_of('everstep_node_gpu_nvlink_up')})", "NVLinks of GPU {{gpu}}"),
        ],
    ),
    Bars(
        title="Disks: free",
        text="Share of each disk that is free.",
        queries=[
            Query(
                f"{_of('everstep_node_disk_free_bytes')} / {_of('everstep_node_disk_size_bytes')}",
                "{{disk}}",
            )
        ],
        unit=Unit.RATIO,
    ),
)
_AGENT_ROW = (
    Curves(
        title="Agent: processor",
        text="Cores that the agent and its children take.",
        queries=[Query(f"rate({_of('everstep_agent_tree_cpu_seconds_total')}[5m])", "cores")],
    ),
    Curves(
        title="Agent: memory",
        text="Memory that the agent and its children share with nobody, without snapshots.",
        queries=[Query(_of("everstep_agent_tree_private_bytes"), "private")],
        unit=Unit.BYTES,
    ),
)

NODE = Board(
    uid="everstep-node",
    title="Everstep: node",
    text="What a node is judged as, what its agent reads, and its devices.",
    variables=(("node", "everstep_node_state"),),
    rows=(
        Row(headline="Judgement", panels=_NOW),
        Row(headline="Host", panels=_HOST),
        Row(headline="Devices", panels=_DEVICES),
        Row(headline="Agent", panels=_AGENT_ROW),
    ),
)
