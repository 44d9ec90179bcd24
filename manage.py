#!/usr/bin/env python3
"""The operators' commands: ``python manage.py help`` lists them. Installed, the same is called ``lithify``."""

from webadmin.command_line import main

if __name__ == "__main__":
    main()
