"""Actions on a running application, asked for over HTTP: rules, and what carries them out."""
