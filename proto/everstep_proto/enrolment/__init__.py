"""Enrolment between nodes and controller: tokens, requests for certificates, and their answers."""
