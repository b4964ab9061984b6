"""Work at a later time: delay levels, timer messages, and checks of transactions."""
