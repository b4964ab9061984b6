//! Memory whose size depends on input: `None` without it, where the library of Rust would abort the
//! process. The call is then left to Python, which raises `MemoryError`.

/// An empty vector with room for `count` elements.
pub fn with_room<T>(count: usize) -> Option<Vec<T>> {
    let mut made = Vec::new();
    made.try_reserve_exact(count).ok()?;
    Some(made)
}

/// Set the length; new bytes are 0.
pub fn resize(bytes: &mut Vec<u8>, length: usize) -> Option<()> {
    bytes.try_reserve(length.saturating_sub(bytes.len())).ok()?;
    bytes.resize(length, 0);
    Some(())
}
