"""One module a library that is measured; each contender runs in a process of its own."""
