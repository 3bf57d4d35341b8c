"""A MicroProfile ``application.properties``, as Quarkus reads it: its text, its values, and what
its channels mean.
"""
