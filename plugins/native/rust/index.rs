//! One chain of an index file, from its newest entry to the oldest: as `walk` of
//! `lakelog_hash_index/indexfile.py`. Errors are left to Python, which reports
//! them, or reads a growing file again.

use std::sync::atomic::{compiler_fence, Ordering};

use pyo3::prelude::*;

use crate::log::read_at;
use crate::maps::FileMap;

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

/// An open index file, which other processes may change.
pub struct File<'py> {
    pub descriptor: i32,
    pub own_map: Option<Bound<'py, FileMap>>,
    pub slots: usize,
    pub entries: usize,
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

impl File<'_> {
    /// All bytes of the map, `Some(None)` without a map; `None` if the file was cut.
    #[inline(always)]
    fn view(&self) -> Option<Option<&[u8]>> {
        match &self.own_map {
            Some(map) => map.get().bytes().map(Some),
            None => Some(None),
        }
    }

    /// `N` bytes, of a view had just now; `None` if the file is shorter.
    #[inline(always)]
    fn read<const N: usize>(&self, view: Option<&[u8]>, at: usize) -> Option<[u8; N]> {
        if let Some(data) = view {
            return data.get(at..at.checked_add(N)?)?.try_into().ok();
        }
        let mut found = [0; N];
        (read_at(self.descriptor, &mut found, at as u64)? == N).then_some(found)
    }

    /// Prefetch the slot of a key.
    pub fn fetch_slot(&self, wanted: &Wanted) {
        let slot = wanted.key_hash as usize % self.slots.max(1);
        if let Some(data) = self.own_map.as_ref().map(|map| map.get().unchecked()) {
            fetch(data.get(HEADER_BYTES + slot * SLOT_BYTES..).unwrap_or_default(), SLOT_BYTES);
        }
    }

    fn entries_at(&self) -> usize {
        HEADER_BYTES + self.slots * SLOT_BYTES
    }
}

fn int(data: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

fn long(data: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_be_bytes(data.get(at..at + 8)?.try_into().ok()?))
}

/// The state of a walk; entry 0 is its end.
pub struct Chain<'py> {
    file: File<'py>,
    wanted: Wanted,
    slot: usize,
    number: i32,
    begin_ms: i64,
    walked: usize,
}

impl<'py> Chain<'py> {
    /// `None` to leave the file to Python.
    pub fn of(file: File<'py>, wanted: Wanted) -> Option<Chain<'py>> {
        let slot = usize::try_from(wanted.key_hash).ok()?.checked_rem(file.slots)?;
        let view = file.view()?;
        let mut number = i32::from_be_bytes(file.read(view, HEADER_BYTES + slot * SLOT_BYTES)?);
        compiler_fence(Ordering::Acquire); // the header is read after the slot: the file may grow
        let header: [u8; HEADER_BYTES] = file.read(view, 0)?;
        let (begin_ms, end_ms) = (long(&header, 0)?, long(&header, 8)?);
        let (first, last) = (long(&header, 16)?, long(&header, 24)?);
        let (used, count) = (int(&header, 32)?, usize::try_from(int(&header, 36)?).ok()?.max(1));
        let most = file.slots.min(count - 1);
        let is_sound = count <= file.entries
            && usize::try_from(used).is_ok_and(|used| used <= most)
            && 0 <= first
            && first <= last;
        let began_ahead = end_ms < begin_ms; // of the clock that was corrected since
        if !is_sound || began_ahead || usize::try_from(number).ok()? >= count {
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
            let entry: [u8; ENTRY_BYTES] = self.file.read(self.file.view()?, at)?;
            let (key_hash, offset) = (int(&entry, 0)?, long(&entry, 4)?);
            let (seconds, previous) = (int(&entry, 12)?, int(&entry, 16)?);
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
    use std::io::Write;
    use std::os::fd::{AsRawFd, FromRawFd};

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
        let memory = unsafe { libc::memfd_create(c"index".as_ptr(), libc::MFD_CLOEXEC) };
        let mut made = unsafe { std::fs::File::from_raw_fd(memory) };
        made.write_all(data).unwrap();
        let file = File { descriptor: made.as_raw_fd(), own_map: None, slots: 2, entries: 8 };
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
    }
}
