"""Object stores through obstore, and the options that open them."""
