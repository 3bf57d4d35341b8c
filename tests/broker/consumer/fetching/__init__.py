"""Our own fetching, without a broker."""
