"""Notices that go out through a slow remote API. See README.md."""
