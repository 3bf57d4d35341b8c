"""Events and facts of an application; health, metrics and log lines are made from them."""
