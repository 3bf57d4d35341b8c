"""The way of a record in: fetched, put into a lane, handed to a handler, settled."""
