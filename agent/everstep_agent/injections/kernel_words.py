"""Injected kernel messages: the text of the lines that injections write to the kernel log."""

from everstep_agent.injections.specs import KernelSpec, XidSpec

# The driver's text after the number of an Xid, as quoted in NVIDIA's catalogue.
_XID_TEXTS = {
    79: "GPU has fallen off the bus.",
    154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
}


def kernel_text(spec: XidSpec | KernelSpec) -> str:
    """Return the line for the kernel log."""
    if isinstance(spec, KernelSpec):
        return spec.text
    # The driver writes PCI addresses without the function (".0").
    pci = spec.pci.rpartition(".")[0]
    text = _XID_TEXTS.get(spec.code, "injected")
    return f"NVRM: Xid (PCI:{pci}): {spec.code}, pid='<unknown>', name=<unknown>, {text}"
