"""Preloads: the modules that ranks were seen to import, as nodes pass them on to standbys.

A preload comes from a user's process and makes processes of the same user on other nodes import:
nothing but names of modules gets through, and such variables as can be a setting, but not a place
or a secret. Pure.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from everstep_common.bounds import Items, Opaque

# All names and values together; a job of torch's DistributedDataParallel has 48 KiB of names.
TEXT_BYTES_MAX = 64 * 1024
_NAME_MAX = 200
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_VARIABLES_MAX = 64
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# A value that is passed on: a number, a switch or a short word, and no path.
_SETTING = re.compile(r"[A-Za-z0-9_.,:+-]{0,32}")
# Variables that are never passed on: those of the dynamic linker and the interpreter, and secrets.
_PRIVATE = re.compile(r"(LD_|PYTHON)\w*|PATH|\w*(KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH)\w*", re.I)
# Variables that say which devices a process sees: they differ from rank to rank.
_DEVICES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "ASCEND_RT_VISIBLE_DEVICES",
        "ASCEND_VISIBLE_DEVICES",
        "ASCEND_DEVICE_ID",
        "ZE_AFFINITY_MASK",
        "ONEAPI_DEVICE_SELECTOR",
        "HABANA_VISIBLE_MODULES",
        "TPU_VISIBLE_CHIPS",
        "XPU_VISIBLE_DEVICES",
        "MLU_VISIBLE_DEVICES",
        "MUSA_VISIBLE_DEVICES",
        "FLAGS_selected_gpus",
        "FLAGS_selected_xpus",
    }
)
# Variables that libraries set themselves when imported: torch, the OpenMP of Intel, TensorFlow.
_OF_LIBRARIES = frozenset(
    {"TORCHINDUCTOR_CACHE_DIR", "KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK", "TF2_BEHAVIOR"}
)

_Module = Annotated[str, Opaque(0, 4096, "the name of a module")]


@dataclass(frozen=True, slots=True)
class Preload:
    """Modules in their order of import, and variables that are to be set before."""

    modules: Annotated[tuple[_Module, ...], Items(100_000)]
    variables: dict[str, str] = field(default_factory=dict)


def is_of_one_rank(name: str) -> bool:
    """Return whether a variable is about a rank's own place or device, by its name."""
    return name in _DEVICES or "LOCAL_RANK" in name


def is_sound(preload: Preload) -> bool:
    """Return whether this is all that a preload may be, whoever it comes from."""
    if _size(preload.modules) + _size(preload.variables.values()) > TEXT_BYTES_MAX:
        return False
    if len(preload.variables) > _VARIABLES_MAX:
        return False
    return all(map(_is_module, preload.modules)) and all(
        _may_be_told(name, value) for name, value in preload.variables.items()
    )


def preload_for_others(modules: Iterable[str], variables: Mapping[str, str]) -> Preload | None:
    """Return what other nodes are told of what a rank here has loaded; None: nothing.

    What is imported without the variables that the script had set before may be set up wrongly for
    good: with one that others must not be told, they are told nothing.
    """
    told = {name: value for name, value in variables.items() if name not in _OF_LIBRARIES}
    kept: list[str] = []
    room = TEXT_BYTES_MAX - _size(told.values())
    # The last ones first: modules that are imported late cannot be known from the script.
    for name in reversed([name for name in modules if _is_worth_telling(name)]):
        room -= len(name) + 1
        if room < 0:
            break
        kept.append(name)
    preload = Preload(tuple(reversed(kept)), told)
    return preload if kept and is_sound(preload) else None


def _is_worth_telling(name: str) -> bool:
    return _is_module(name) and name.partition(".")[0] not in sys.stdlib_module_names


def _is_module(name: str) -> bool:
    return len(name) <= _NAME_MAX and _MODULE.fullmatch(name) is not None


def _may_be_told(name: str, value: str) -> bool:
    if is_of_one_rank(name) or _PRIVATE.fullmatch(name):
        return False
    return bool(_VARIABLE.fullmatch(name) and _SETTING.fullmatch(value))


def _size(texts: Iterable[str]) -> int:
    return sum(len(text) + 1 for text in texts)
