"""How records come in: how many each partition may bring, and what a poll brought."""
