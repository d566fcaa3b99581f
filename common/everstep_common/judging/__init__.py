"""Judgement vocabulary: conditions and findings, shared by agent, controller and CLI. Pure."""
