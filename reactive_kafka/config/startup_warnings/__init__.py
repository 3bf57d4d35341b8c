"""What is told of a configuration that works: at the start, and by ``check``."""
