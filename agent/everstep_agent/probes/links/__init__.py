"""Probes of network links: Ethernet, InfiniBand, the cards and their place on the PCI bus."""
