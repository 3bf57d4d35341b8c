"""What start-up makes of the settings and the declarations: a plan for each channel, or problems."""
