"""cs, dimensions and uom: coordinates that attributes describe, their values, times and units."""
