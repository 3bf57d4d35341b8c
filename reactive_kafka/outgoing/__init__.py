"""The way of a record out: serialised, sent, confirmed."""
