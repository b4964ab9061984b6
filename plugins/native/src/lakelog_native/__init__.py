"""What a lakelog store does for every message, in Rust; lakelog's Python code is the rule."""
