"""Enrolment: the port at which nodes get certificates, who signs them, and who is refused."""
