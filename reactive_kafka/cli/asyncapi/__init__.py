"""``reactive-kafka asyncapi``: the AsyncAPI document of an application."""
