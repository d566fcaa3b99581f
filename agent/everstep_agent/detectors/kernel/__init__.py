"""Kernel log detectors: judgements of kernel messages; this package exports what others use."""

from everstep_agent.detectors.kernel.clearance import CONDITIONS as CONDITIONS
from everstep_agent.detectors.kernel.clearance import judge_gpu_faults_over as judge_gpu_faults_over
from everstep_agent.detectors.kernel.detector import KernelDetector as KernelDetector
from everstep_agent.detectors.kernel.detector import XidSettings as XidSettings
from everstep_agent.detectors.kernel.detector import judge_kernel as judge_kernel
from everstep_agent.detectors.kernel.detector import worth_showing as worth_showing
from everstep_agent.detectors.kernel.line import KernelLine as KernelLine
from everstep_agent.detectors.kernel.line import pci_address as pci_address
from everstep_agent.detectors.kernel.xid import XidEvent as XidEvent
from everstep_agent.detectors.kernel.xid import xid_event as xid_event
