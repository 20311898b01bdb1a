"""HTTP(S) byte ranges: redirects, retries, and how many requests run at once."""
