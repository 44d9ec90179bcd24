"""Building blocks of the admin pages of all apps: sections, formatting, filters, actions, theme."""
