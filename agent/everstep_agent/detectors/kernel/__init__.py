"""Kernel log detectors: judgements of kernel messages; this package exports what others use."""

from everstep_agent.detectors.kernel.detector import KernelDetector as KernelDetector
from everstep_agent.detectors.kernel.detector import XidSettings as XidSettings
from everstep_agent.detectors.kernel.detector import judge_kernel as judge_kernel
from everstep_agent.detectors.kernel.detector import worth_showing as worth_showing
from everstep_agent.detectors.kernel.gpu_faults.clearance import CONDITIONS as CONDITIONS
from everstep_agent.detectors.kernel.gpu_faults.clearance import (
    judge_gpu_faults_over as judge_gpu_faults_over,
)
from everstep_agent.detectors.kernel.gpu_faults.xid import XidEvent as XidEvent
from everstep_agent.detectors.kernel.gpu_faults.xid import xid_event as xid_event
from everstep_agent.detectors.kernel.rules.line import KernelLine as KernelLine
from everstep_agent.detectors.kernel.rules.line import pci_address as pci_address
