"""Controller: judges, isolates, plans recovery and keeps the ledger."""
