"""The members of each contender. ``benchmarks.peers.contenders`` runs them."""
