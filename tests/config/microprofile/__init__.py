"""What an ``application.properties`` means."""
