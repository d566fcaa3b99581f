"""Admin service: what operators and viewers ask and order, by the calls of admin.proto."""
