"""Access control: tenants, worker credentials, the audit log."""
