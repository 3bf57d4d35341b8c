"""Connections to brokers: their bytes, their requests, and the login."""
