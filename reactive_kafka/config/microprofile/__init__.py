"""Reads an ``application.properties`` of MicroProfile as Quarkus does."""
