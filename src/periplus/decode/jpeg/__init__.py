"""The jpeg codec: whole streams, or bands of one that has restart markers."""
