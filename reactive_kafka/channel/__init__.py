"""One incoming channel: its states, its sessions, its Kafka clients, and what users hold."""
