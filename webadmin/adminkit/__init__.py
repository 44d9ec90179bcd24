"""What admin pages of every app are made of: sections, formatting, filters, orders, theme."""
