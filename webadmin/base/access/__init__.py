"""Who may do what: tenants, worker credentials, the audit log."""
