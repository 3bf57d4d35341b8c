"""What users get: the packages, the public names, and the files that deploy a service."""
