"""``reactive-kafka asyncapi``: what an application reads and writes, as an AsyncAPI document."""
