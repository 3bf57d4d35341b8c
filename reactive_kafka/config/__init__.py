"""The configuration: frozen settings, and the loader that makes them from files, environment and
code.
"""
