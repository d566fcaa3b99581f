"""Transfers of copies between agents: authenticated connections, stripes, rates."""
