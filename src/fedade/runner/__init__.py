"""Running cells: what is to do, where it is kept, who does it, and who hears of it."""
