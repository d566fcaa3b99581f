"""Pages of the controller over HTTP; today what Prometheus reads is the only one."""
