//! One chain of an index file, from its newest entry to the oldest: as `walk` of
//! `lakelog_hash_index/walk.py`. Whatever is not as it should be is left to Python, which says what
//! it is, or looks again at a file that grows.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::run::{long, octets};

const HEADER_BYTES: usize = 40;
const SLOT_BYTES: usize = 4;
const ENTRY_BYTES: usize = 20;
const ROUNDED_MS: i64 = 999;
/// Longer chains are walked by Python, whose callers may stop on the way.
const MOST_ENTRIES: usize = 4096;

struct File<'a> {
    data: &'a [u8],
    slots: usize,
    entries: usize,
}

/// What is looked for: the hash of a key, and store times in ms, both ends in.
#[derive(Clone, Copy)]
struct Wanted {
    key_hash: i32,
    begin_ms: i64,
    end_ms: i64,
}

impl Wanted {
    fn takes(&self, first_ms: i64, last_ms: i64) -> bool {
        first_ms <= self.end_ms && last_ms >= self.begin_ms
    }
}

impl File<'_> {
    fn int(&self, at: usize) -> Option<i32> {
        let bytes = self.data.get(at..at.checked_add(4)?)?;
        Some(i32::from_be_bytes(bytes.try_into().ok()?))
    }

    fn long(&self, at: usize) -> Option<i64> {
        let bytes = self.data.get(at..at.checked_add(8)?)?;
        Some(i64::from_be_bytes(bytes.try_into().ok()?))
    }

    /// The offsets of what is wanted; `None` where Python has to look.
    fn walk(&self, wanted: Wanted) -> Option<Vec<i64>> {
        let slot = usize::try_from(wanted.key_hash).ok()?.checked_rem(self.slots)?;
        let mut number = self.int(HEADER_BYTES + slot * SLOT_BYTES)?;
        // After the slot: a file may grow meanwhile.
        let (begin_ms, end_ms) = (self.long(0)?, self.long(8)?);
        let (first, last) = (self.long(16)?, self.long(24)?);
        let (used, count) = (self.int(32)?, usize::try_from(self.int(36)?).ok()?.max(1));
        let most = self.slots.min(count - 1);
        let is_sound = count <= self.entries
            && usize::try_from(used).is_ok_and(|used| used <= most)
            && 0 <= first
            && first <= last;
        if !is_sound || usize::try_from(number).ok()? >= count {
            return None;
        }
        let mut found = Vec::new();
        if !wanted.takes(begin_ms, end_ms.checked_add(ROUNDED_MS)?) {
            return Some(found);
        }
        let entries_at = HEADER_BYTES + self.slots * SLOT_BYTES;
        for _ in 0..MOST_ENTRIES {
            if number == 0 {
                return Some(found);
            }
            let at = entries_at + number as usize * ENTRY_BYTES;
            let (key_hash, offset) = (self.int(at)?, self.long(at + 4)?);
            let (seconds, previous) = (self.int(at + 12)?, self.int(at + 16)?);
            let is_of_slot = usize::try_from(key_hash).ok()? % self.slots == slot;
            if !is_of_slot || seconds < 0 || offset < 0 || !(0..number).contains(&previous) {
                return None;
            }
            let (first_ms, last_ms) = if number == 1 {
                (begin_ms, begin_ms)
            } else {
                let first_ms = begin_ms.checked_add(seconds as i64 * 1000)?;
                (first_ms, first_ms.checked_add(ROUNDED_MS)?)
            };
            if key_hash == wanted.key_hash && wanted.takes(first_ms, last_ms) {
                found.push(offset);
            }
            number = previous;
        }
        None
    }
}

/// As ``walk``: the offsets that one file holds, the newest first.
#[pyfunction]
pub fn walk_index(
    file: PyBuffer<u8>,
    slots: usize,
    entries: usize,
    key_hash: i32,
    begin_ms: &Bound<'_, PyAny>,
    end_ms: &Bound<'_, PyAny>,
) -> Option<Vec<i64>> {
    let (begin_ms, end_ms) = (long(begin_ms)?, long(end_ms)?);
    let data = octets(&file)?;
    let length = slots.checked_mul(SLOT_BYTES)?.checked_add(HEADER_BYTES)?;
    let length = length.checked_add(entries.checked_mul(ENTRY_BYTES)?)?;
    if data.len() < length {
        return None;
    }
    let file = File { data, slots, entries };
    file.walk(Wanted { key_hash, begin_ms, end_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(entries: &[(i32, i64, i32, i32)], head: i32) -> Vec<u8> {
        let mut made = vec![0; HEADER_BYTES + 2 * SLOT_BYTES + 8 * ENTRY_BYTES];
        made[0..8].copy_from_slice(&1000i64.to_be_bytes());
        made[8..16].copy_from_slice(&9000i64.to_be_bytes());
        made[32..36].copy_from_slice(&1i32.to_be_bytes());
        made[36..40].copy_from_slice(&(entries.len() as i32 + 1).to_be_bytes());
        made[44..48].copy_from_slice(&head.to_be_bytes());
        for (number, (hash, offset, seconds, previous)) in entries.iter().enumerate() {
            let at = 48 + (number + 1) * ENTRY_BYTES;
            made[at..at + 4].copy_from_slice(&hash.to_be_bytes());
            made[at + 4..at + 12].copy_from_slice(&offset.to_be_bytes());
            made[at + 12..at + 16].copy_from_slice(&seconds.to_be_bytes());
            made[at + 16..at + 20].copy_from_slice(&previous.to_be_bytes());
        }
        made
    }

    fn walk(data: &[u8], key_hash: i32, begin_ms: i64, end_ms: i64) -> Option<Vec<i64>> {
        let file = File { data, slots: 2, entries: 8 };
        file.walk(Wanted { key_hash, begin_ms, end_ms })
    }

    #[test]
    fn a_chain_from_its_newest_entry_on() {
        let made = file(&[(3, 100, 0, 0), (5, 200, 1, 1), (3, 300, 5, 2)], 3);
        assert_eq!(walk(&made, 3, 0, i64::MAX), Some(vec![300, 100]));
        assert_eq!(walk(&made, 3, 2000, 8000), Some(vec![300]));
        assert_eq!(walk(&made, 5, 0, i64::MAX), Some(vec![200]));
        assert_eq!(walk(&made, 2, 0, i64::MAX), Some(vec![]));
        assert_eq!(walk(&made, 3, 99_000, i64::MAX), Some(vec![]));
    }

    #[test]
    fn nothing_makes_it_panic_or_go_in_circles() {
        let good = file(&[(3, 100, 0, 0), (5, 200, 1, 1), (3, 300, 5, 2)], 3);
        for at in 0..good.len() {
            for byte in [0, 1, 2, 3, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                walk(&bad, 3, i64::MIN, i64::MAX);
                walk(&bad[..at], 3, i64::MIN, i64::MAX);
            }
        }
        assert_eq!(walk(&file(&[(3, 100, 0, 1)], 1), 3, 0, i64::MAX), None);
    }
}
