"""What the user declared: decorators, signatures, hooks, jobs, middleware and dependencies."""
