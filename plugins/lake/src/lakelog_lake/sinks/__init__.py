"""Where messages land: each kind of table behind one protocol, :class:`.base.Sink`."""
