"""Where links and accelerators sit: from agent to journal and operator, old journals too."""

import io
import json

from rich.console import Console

from everstep_cli.views.nodes import node_sheet
from everstep_controller.api.admin.messages.fleet_messages import node_detail
from everstep_controller.api.fleet.from_agent import node_connected
from everstep_controller.core.events import NodeConnected
from everstep_controller.core.model.node import NodeRecord, NodeSpec
from everstep_controller.core.model.state import State
from everstep_controller.journal import codec
from everstep_proto.generated import fleet_pb2


def _hello() -> fleet_pb2.Hello:
    port = fleet_pb2.Interface(
        name="mlx5_0/1",
        kind="infiniband",
        up=True,
        speed_bits_per_s=400 * 10**9,
        pci_address="0000:14:00.0",
        numa_node=0,
        firmware="28.39.2048",
    )
    lo = fleet_pb2.Interface(name="lo", kind="loopback", up=True)
    gpu = fleet_pb2.Accelerator(
        uuid="GPU-1",
        name="NVIDIA H100",
        vendor="nvidia",
        pci_address="0000:13:00.0",
        numa_node=0,
        nearest_interfaces=["mlx5_0/1"],
        nearest_distance="PIX",
    )
    return fleet_pb2.Hello(
        node="node-1",
        agent_version="0.1.0",
        outbox="box",
        stamp=fleet_pb2.Stamp(boot_id="boot-1"),
        inventory=fleet_pb2.Inventory(interfaces=[port, lo], accelerators=[gpu]),
    )


def test_the_topology_outlives_the_journal() -> None:
    event = node_connected(_hello(), 0)
    port, lo = event.inventory.interfaces
    assert (port.numa_node, port.pci_address, port.firmware) == (0, "0000:14:00.0", "28.39.2048")
    assert lo.numa_node is None
    assert codec.decode_event("NodeConnected", codec.encode(event)) == event


def test_a_journal_of_a_version_without_topology_is_read() -> None:
    document = json.loads(codec.encode(node_connected(_hello(), 0)))
    for interface in document["inventory"]["interfaces"]:
        for key in ("pci_address", "numa_node", "firmware"):
            del interface[key]
    for accelerator in document["inventory"]["accelerators"]:
        for key in ("numa_node", "nearest_interfaces", "nearest_distance"):
            del accelerator[key]
    event = codec.decode_event("NodeConnected", json.dumps(document).encode())
    assert isinstance(event, NodeConnected)
    assert event.inventory.accelerators[0].nearest_interfaces == ()
    assert event.inventory.interfaces[0].numa_node is None


def test_an_operator_sees_which_link_is_near_to_which_accelerator() -> None:
    record = NodeRecord("node-1", spec=NodeSpec(inventory=node_connected(_hello(), 0).inventory))
    screen = io.StringIO()
    console = Console(file=screen, width=160, highlight=False)
    for part in node_sheet(node_detail(State(), record, None, ()), 0):
        console.print(part)
    lines = screen.getvalue().splitlines()
    (gpu,) = [line for line in lines if "GPU-1" in line]
    assert "mlx5_0/1 PIX" in gpu
    (port,) = [line for line in lines if "28.39.2048" in line]
    assert "0000:14:00.0" in port
