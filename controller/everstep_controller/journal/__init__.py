"""Journal: the controller's events, written down durably before anything is done about them."""
