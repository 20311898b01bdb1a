"""mosaic: files side by side, or over each other, become one array."""
