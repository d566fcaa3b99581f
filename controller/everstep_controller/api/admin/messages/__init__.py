"""Messages of the admin API: what the controller knows, as it is sent to who asks."""
