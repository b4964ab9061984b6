//! One chain of an index file, from its newest entry to the oldest: as `walk` of
//! `lakelog_hash_index/indexfile.py`. Errors are left to Python, which reports
//! them, or reads a growing file again.

const HEADER_BYTES: usize = 40;
const SLOT_BYTES: usize = 4;
const ENTRY_BYTES: usize = 20;
const LINE_BYTES: usize = 64;
const ROUNDED_MS: i64 = 999;
/// Longer chains are left to Python, whose callers may stop early.
const MOST_ENTRIES: usize = 4096;

/// Prefetch the first `bytes` bytes into the processor's caches, all cache lines at once.
#[inline(always)]
pub fn fetch(data: &[u8], bytes: usize) {
    for line in data[..bytes.min(data.len())].chunks(LINE_BYTES) {
        #[cfg(target_arch = "x86_64")]
        unsafe {
            use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
            _mm_prefetch(line.as_ptr().cast(), _MM_HINT_T0);
        }
        #[cfg(not(target_arch = "x86_64"))]
        std::hint::black_box(line);
    }
}

/// The bytes of an index file, which other processes may change.
#[derive(Clone, Copy)]
pub struct File<'a> {
    data: &'a [u8],
    slots: usize,
}

/// A query: the hash of a key, and an inclusive window of store times in ms.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub key_hash: i32,
    pub begin_ms: i64,
    pub end_ms: i64,
}

impl Wanted {
    fn takes(&self, first_ms: i64, last_ms: i64) -> bool {
        first_ms <= self.end_ms && last_ms >= self.begin_ms
    }

    pub fn has_time(&self, time_ms: i64) -> bool {
        self.takes(time_ms, time_ms)
    }
}

impl<'a> File<'a> {
    /// `None` if the length does not match the shape.
    pub fn of(data: &'a [u8], slots: usize, entries: usize) -> Option<File<'a>> {
        let length = slots.checked_mul(SLOT_BYTES)?.checked_add(HEADER_BYTES)?;
        let length = length.checked_add(entries.checked_mul(ENTRY_BYTES)?)?;
        (data.len() == length).then_some(File { data, slots })
    }

    /// Prefetch the slot of a key.
    pub fn fetch_slot(&self, wanted: &Wanted) {
        let slot = wanted.key_hash as usize % self.slots.max(1);
        fetch(&self.data[HEADER_BYTES + slot * SLOT_BYTES..], SLOT_BYTES);
    }

    fn entries_at(&self) -> usize {
        HEADER_BYTES + self.slots * SLOT_BYTES
    }

    fn entries(&self) -> usize {
        (self.data.len() - self.entries_at()) / ENTRY_BYTES
    }

    fn int(&self, at: usize) -> Option<i32> {
        let bytes = self.data.get(at..at.checked_add(4)?)?;
        Some(i32::from_be_bytes(bytes.try_into().ok()?))
    }

    fn long(&self, at: usize) -> Option<i64> {
        let bytes = self.data.get(at..at.checked_add(8)?)?;
        Some(i64::from_be_bytes(bytes.try_into().ok()?))
    }
}

/// The state of a walk; entry 0 is its end.
pub struct Chain<'a> {
    file: File<'a>,
    wanted: Wanted,
    slot: usize,
    number: i32,
    begin_ms: i64,
    walked: usize,
}

impl<'a> Chain<'a> {
    /// `None` to leave the file to Python.
    pub fn of(file: File<'a>, wanted: Wanted) -> Option<Chain<'a>> {
        let slot = usize::try_from(wanted.key_hash).ok()?.checked_rem(file.slots)?;
        let mut number = file.int(HEADER_BYTES + slot * SLOT_BYTES)?;
        // Read after the slot, as the file may grow.
        let (begin_ms, end_ms) = (file.long(0)?, file.long(8)?);
        let (first, last) = (file.long(16)?, file.long(24)?);
        let (used, count) = (file.int(32)?, usize::try_from(file.int(36)?).ok()?.max(1));
        let most = file.slots.min(count - 1);
        let is_sound = count <= file.entries()
            && usize::try_from(used).is_ok_and(|used| used <= most)
            && 0 <= first
            && first <= last;
        if !is_sound || usize::try_from(number).ok()? >= count {
            return None;
        }
        if !wanted.takes(begin_ms, end_ms.checked_add(ROUNDED_MS)?) {
            number = 0;
        }
        Some(Chain { file, wanted, slot, number, begin_ms, walked: 0 })
    }

    /// The next entry, or the end; `None` to leave the file to Python.
    pub fn next(&mut self) -> Option<Option<i64>> {
        while self.number != 0 {
            let number = self.number;
            let at = self.file.entries_at() + number as usize * ENTRY_BYTES;
            let (key_hash, offset) = (self.file.int(at)?, self.file.long(at + 4)?);
            let (seconds, previous) = (self.file.int(at + 12)?, self.file.int(at + 16)?);
            let is_of_slot = usize::try_from(key_hash).ok()? % self.file.slots == self.slot;
            let is_sound = is_of_slot && seconds >= 0 && offset >= 0;
            self.walked += 1;
            if !is_sound || !(0..number).contains(&previous) || self.walked > MOST_ENTRIES {
                return None;
            }
            self.number = previous;
            if key_hash == self.wanted.key_hash && self.is_in_time(number, seconds)? {
                return Some(Some(offset));
            }
        }
        Some(None)
    }

    fn is_in_time(&self, number: i32, seconds: i32) -> Option<bool> {
        if number == 1 {
            return Some(self.wanted.has_time(self.begin_ms));
        }
        let first_ms = self.begin_ms.checked_add(seconds as i64 * 1000)?;
        Some(self.wanted.takes(first_ms, first_ms.checked_add(ROUNDED_MS)?))
    }
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
        let file = File::of(data, 2, 8)?;
        let mut chain = Chain::of(file, Wanted { key_hash, begin_ms, end_ms })?;
        let mut found = Vec::new();
        while let Some(offset) = chain.next()? {
            found.push(offset);
        }
        Some(found)
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
        assert!(File::of(&good, 1 << 62, 8).is_none());
        assert!(File::of(&good, 2, usize::MAX).is_none());
        assert!(File::of(&good, 2, 9).is_none());
    }
}
