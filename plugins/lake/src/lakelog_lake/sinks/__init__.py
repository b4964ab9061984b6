"""The kinds of tables in which messages land, behind one protocol, :class:`.base.Sink`."""
