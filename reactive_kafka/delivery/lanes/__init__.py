"""The queued records of a channel and the rules for which one runs next. The rules are pure."""
