"""Devices that answer: how many of each kind, so that a check that passes says what it saw."""

from collections.abc import Iterator

from everstep_agent.detectors.links.reading import RDMA_KINDS, LinkReading
from everstep_agent.inventory.node_view import NodeView


def devices_that_answer(view: NodeView) -> tuple[str, ...]:
    """Return it in words, "7 of 8 GPUs"; a kind that was not read yet is left out."""
    return tuple(_counts(view))


def _counts(view: NodeView) -> Iterator[str]:
    if view.gpus is not None:
        answering = sum(1 for gpu in view.gpus.gpus if not gpu.error)
        known = max(len(view.gpus.gpus), view.gpus_on_bus)
        if known:
            yield _of(answering, known, "GPUs")
    others = [one for one in view.accelerators.values() if one is not None and one.devices]
    devices = [device for reading in others for device in reading.devices]
    if devices:
        yield _of(sum(1 for one in devices if not one.error), len(devices), "accelerators")
    links = view.links or ()
    ports = [link for link in links if link.kind in RDMA_KINDS]
    if ports:
        yield _of(_up(ports), len(ports), "RDMA ports")
    cards = [link for link in links if link.kind == "ethernet" and link.pci]
    if cards:
        yield _of(_up(cards), len(cards), "Ethernet links")


def _up(links: list[LinkReading]) -> int:
    return sum(1 for link in links if link.up)


def _of(answering: int, known: int, kind: str) -> str:
    return f"{answering} of {known} {kind}"
