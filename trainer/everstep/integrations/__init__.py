"""Integrations: Everstep inside frameworks and launchers of others."""
