"""One partition from assignment to revocation: where reading starts, what is fetched, what is
committed.
"""
