"""Modules of torch in a state: they name the optimizers' parameters, and say which are equal."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch.nn.parallel import DistributedDataParallel

from everstep.copy_engine.views import StateError
from everstep.state.objects.kinds import (
    NO_REPLICA,
    ModuleObject,
    Object,
    OptimizerObject,
    Stateful,
    any_object,
)
from everstep.state.objects.paths import join, word
from everstep.state.shards.parts import Place


@dataclass(frozen=True, slots=True)
class Modules:
    """Names of the parameters in a state's modules, and those equal in all ranks, by id()."""

    names: Mapping[int, str]
    equal: frozenset[int]

    @classmethod
    def among(
        cls,
        stateful: Mapping[str, Stateful],
        place: Place,
        replicas: Collection[DistributedDataParallel] = (),
    ) -> "Modules":
        """Look at every module of the state, and at others that keep parameters of it equal."""
        found = {n: thing for n, thing in stateful.items() if isinstance(thing, torch.nn.Module)}
        names = {
            id(parameter): f"{name}.{parameter_name}"
            for name, module in found.items()
            for parameter_name, parameter in module.named_parameters()
        }
        equal = {
            id(parameter)
            for module in (*found.values(), *replicas)
            for inner in module.modules()
            if isinstance(inner, DistributedDataParallel) and _spans(inner, place)
            for parameter_name, parameter in inner.module.named_parameters()
            if parameter_name not in inner.parameters_to_ignore
        }
        return cls(names, frozenset(equal))

    def object_of(self, name: str, thing: Stateful, all_equal: bool) -> Object:
        """Return a Stateful as what it is."""
        if isinstance(thing, torch.nn.Module):
            equal = frozenset(
                join(name, parameter_name)
                for parameter_name, parameter in thing.named_parameters()
                if id(parameter) in self.equal
            )
            return ModuleObject(name, thing, all_equal, equal_paths=equal)
        if isinstance(thing, torch.optim.Optimizer):
            groups = [list(group["params"]) for group in thing.param_groups]
            if all(id(parameter) in self.names for group in groups for parameter in group):
                return self._optimizer(name, thing, groups, all_equal)
        return any_object(name, thing, all_equal)

    def _optimizer(
        self,
        name: str,
        optimizer: torch.optim.Optimizer,
        groups: list[list[torch.nn.Parameter]],
        all_equal: bool,
    ) -> Object:
        # Others may keep different state in each rank, as ZeroRedundancyOptimizer does.
        same_everywhere = type(optimizer).__module__.startswith("torch.optim.")
        parameters = {word(self.names[id(p)]): p for group in groups for p in group}
        return OptimizerObject(
            name,
            optimizer,
            all_equal,
            names=[[self.names[id(parameter)] for parameter in group] for group in groups],
            parameters=parameters,
            equal_names=frozenset(
                key for key, p in parameters.items() if same_everywhere and id(p) in self.equal
            ),
        )


def replicas_among(things: Collection[Stateful]) -> list[DistributedDataParallel]:
    """Return them. Raises StateError for what is something else."""
    found = [one for one in things if isinstance(one, DistributedDataParallel)]
    if len(found) < len(things):
        raise StateError(NO_REPLICA)
    return found


def _spans(module: DistributedDataParallel, place: Place) -> bool:
    """Return whether the replicas are all the ranks of the job, not a group in each stage."""
    group = module.process_group
    return group is not None and group.size() == place.world_size
