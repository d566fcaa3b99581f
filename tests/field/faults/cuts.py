"""Blows to the network: cuts of one machine, of racks, of the controller; both ways or one."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from field.faults.world import Done, World
from field.machines.site import RACKS


def _others(world: World, *names: str) -> list[str]:
    return [name for name in world.fleet.site.names if name not in names]


def _cut_machine(world: World) -> Done:
    one = world.machine(but_the_controller=True).name
    heal = world.fleet.network.cut([one], _others(world, one))
    return Done((one,), undo=heal)


def _deafen_machine(world: World) -> Done:
    one = world.machine(but_the_controller=True).name
    heal = world.fleet.network.cut(_others(world, one), [one], both_ways=False)
    return Done((one,), detail="it hears nobody", undo=heal)


def _cut_racks(world: World) -> Done:
    one, other = (world.fleet.site.in_rack(rack) for rack in RACKS)
    heal = world.fleet.network.cut(one, other)
    return Done((*one, *other), undo=heal)


def _cut_controller(world: World) -> Done:
    control = world.fleet.control
    heal = world.fleet.network.cut([control], _others(world, control))
    return Done((control,), detail="from all agents", undo=heal)


def _cut_two(world: World) -> Done:
    one, other = world.chance.sample(_others(world, world.fleet.control), 2)
    heal = world.fleet.network.cut([one], [other])
    return Done((one, other), undo=heal)


BLOWS: Mapping[str, Callable[[World], Done]] = MappingProxyType(
    {
        "cut_machine": _cut_machine,
        "deafen_machine": _deafen_machine,
        "cut_racks": _cut_racks,
        "cut_controller": _cut_controller,
        "cut_two": _cut_two,
    }
)
