"""A rolling restart of one group under load: who stops, for how long, and what is repeated."""
