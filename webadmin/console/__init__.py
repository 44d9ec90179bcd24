"""The admin's front page, and the theme of all pages."""
