"""Webhooks: decisions, findings and incidents, sent to the site's receivers as CloudEvents."""
