"""Snapshots on this node: slots, copies and manifests, and what of them outlives the agent."""
