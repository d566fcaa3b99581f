"""Compute kernel of the pair test, in PTX: every thread does the same number of multiply-adds."""

import struct

FUNCTION = b"fixed_work"
# Fused multiply-adds of one thread in one turn of the loop: independent chains, so that the units
# are full, each so long that the loop's own instructions are a small part.
_CHAINS, _UNROLLED = 8, 16
FMAS_PER_TURN = _CHAINS * _UNROLLED
THREADS_PER_BLOCK = 256
# 2,048 threads on each multiprocessor: as many as one holds since 2020's GPUs, but few.
BLOCKS_PER_MULTIPROCESSOR = 8
# x = x * A + B comes close to 1 and stays: no infinity, no denormal number, nothing to leave out.
_A, _B = 0.999, 0.001


def fma_ptx() -> bytes:
    """Return the kernel's text: parameters are the address of the results and the turns."""
    chains = range(_CHAINS)
    starts = [
        f"mov.f32 %x{i}, {_float(0.5 + i / 16)}; add.f32 %x{i}, %x{i}, %seed;" for i in chains
    ]
    step = [f"fma.rn.f32 %x{i}, %x{i}, %a, %b;" for i in chains]
    sums = [f"add.f32 %x0, %x0, %x{i};" for i in chains if i]
    lines = [
        # The oldest version and target that driver 450 and all later ones compile for their GPUs.
        ".version 6.0",
        ".target sm_70",
        ".address_size 64",
        f".visible .entry {FUNCTION.decode()}(.param .u64 results, .param .u32 turns)",
        "{",
        f".reg .f32 %x<{_CHAINS}>, %a, %b, %seed;",
        ".reg .b32 %turns, %thread, %block, %size, %place;",
        ".reg .b64 %base, %offset, %address;",
        ".reg .pred %more;",
        "ld.param.u64 %base, [results];",
        "ld.param.u32 %turns, [turns];",
        "cvta.to.global.u64 %base, %base;",
        "mov.u32 %thread, %tid.x;",
        "mov.u32 %block, %ctaid.x;",
        "mov.u32 %size, %ntid.x;",
        "mad.lo.u32 %place, %block, %size, %thread;",
        "cvt.rn.f32.u32 %seed, %thread;",
        f"mul.f32 %seed, %seed, {_float(1 / 1024)};",
        f"mov.f32 %a, {_float(_A)};",
        f"mov.f32 %b, {_float(_B)};",
        *starts,
        "again:",
        *step * _UNROLLED,
        "sub.u32 %turns, %turns, 1;",
        "setp.ne.u32 %more, %turns, 0;",
        "@%more bra again;",
        *sums,
        "mul.wide.u32 %offset, %place, 4;",
        "add.u64 %address, %base, %offset;",
        "st.global.f32 [%address], %x0;",
        "ret;",
        "}",
    ]
    return "\n".join(lines).encode() + b"\n\0"


def _float(value: float) -> str:
    """Return a number as PTX writes an exact one."""
    return f"0f{struct.unpack('<I', struct.pack('<f', value))[0]:08X}"
