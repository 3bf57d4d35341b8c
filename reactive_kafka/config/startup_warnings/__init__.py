"""Warnings about a configuration that works. The start logs them, and ``check`` prints them."""
