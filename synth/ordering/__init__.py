"""Order in time: what runs first when communications share resources, and when all is over."""
