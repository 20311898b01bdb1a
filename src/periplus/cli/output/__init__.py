"""What the command line writes: windows as images, rows as tables, text and progress."""
