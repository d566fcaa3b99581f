"""Persistence: what an agent remembers over a restart, its outbox first of all."""
