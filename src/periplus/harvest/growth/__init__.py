"""Adding files to an index that exists: what stays, what follows, what is read again."""
