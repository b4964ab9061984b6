"""The work per message of a lakelog store, in Rust; lakelog's Python code is the specification."""
