"""spatial and geolocation: where the samples of an array are on the Earth."""
