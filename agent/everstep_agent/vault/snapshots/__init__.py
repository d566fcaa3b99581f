"""Snapshots on this node: slots, copies and their manifests, and what of them outlives an agent."""
