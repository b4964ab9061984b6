//! Builds entries of an index file for many records, and their slots: as `put` of
//! `lakelog_hash_index/filewriter.py`.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::dispatch::{each_key, without_lock};
use crate::memory;
use crate::octets::Octets;
use crate::run::{numbers, octets};

const HEADER_BYTES: usize = 40;
const SLOT_BYTES: usize = 4;
const ENTRY_BYTES: usize = 20;
const PREVIOUS_AT: usize = 16;
const HEAD_BYTES: usize = 8;

/// The slots of a mapped file, which other processes read concurrently.
struct Slots<'a> {
    slots: &'a [AtomicU32],
}

impl<'a> Slots<'a> {
    /// `None` if the map has fewer slots, or there is no map.
    fn of(map: &'a PyBuffer<u8>, count: usize) -> Option<Slots<'a>> {
        let length = count.checked_mul(SLOT_BYTES)?.checked_add(HEADER_BYTES)?;
        let start = (map.buf_ptr() as *mut u8).wrapping_add(HEADER_BYTES) as *mut AtomicU32;
        if count == 0 || map.readonly() || map.len_bytes() < length || !start.is_aligned() {
            return None;
        }
        // The map is held by the caller for as long as the slice is used.
        Some(Slots { slots: unsafe { std::slice::from_raw_parts(start, count) } })
    }

    /// The newest entry of a slot; a number that is not below `first` counts as none.
    #[inline(always)]
    fn get(&self, slot: usize, first: i32) -> i32 {
        let found = u32::from_be(self.slots[slot].load(Ordering::Relaxed)) as i32;
        if (0..first).contains(&found) {
            found
        } else {
            0
        }
    }

    fn set(&self, slot: usize, entry: i32) {
        if let Some(word) = self.slots.get(slot) {
            word.store((entry as u32).to_be(), Ordering::Relaxed);
        }
    }
}

/// Follow existing entries in their order: set `heads` to the newest entry of each slot. The first
/// entry has the number `first`.
///
/// Returns the number of slots that were empty before, and the physical offset in the last entry;
/// `None` if an entry is not sound, with `heads` unchanged.
fn follow(data: &[u8], first: i32, last_offset: i64, heads: &mut [i32]) -> Option<(usize, i64)> {
    let mut followed: Vec<(u32, i32)> = memory::with_room(data.len() / ENTRY_BYTES)?;
    let (mut opened, mut last) = (0, last_offset);
    for raw in data.chunks_exact(ENTRY_BYTES) {
        let raw: [u8; ENTRY_BYTES] = std::hint::black_box(raw.try_into().ok()?); // may change meanwhile
        let int = |at: usize| i32::from_be_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let offset = (int(4) as i64) << 32 | int(8) as u32 as i64;
        let (hash, previous) = (int(0), int(PREVIOUS_AT));
        let slot = hash as u32 % heads.len() as u32;
        let head = &mut heads[slot as usize];
        if hash < 0 || offset < last || int(12) < 0 || previous != *head {
            for &(slot, before) in followed.iter().rev() {
                heads[slot as usize] = before;
            }
            return None;
        }
        opened += (previous == 0) as usize;
        *head = first + followed.len() as i32;
        followed.push((slot, previous)); // there is room
        last = offset;
    }
    Some((opened, last))
}

/// As ``link`` of ``indexfile.py``, for entries that are in a file: `follow`.
#[pyfunction]
pub fn follow_entries(
    py: Python<'_>,
    entries: PyBuffer<u8>,
    first: i32,
    last_offset: i64,
    heads: PyBuffer<i32>,
) -> Option<(usize, i64)> {
    let data = octets(&entries)?;
    let (count, slots) = (data.len() / ENTRY_BYTES, heads.item_count());
    let end = i32::try_from(count).ok().and_then(|count| first.checked_add(count));
    let is_plain = !heads.readonly() && heads.is_c_contiguous() && data.len() % ENTRY_BYTES == 0;
    if !is_plain || first < 1 || end.is_none() || slots == 0 || u32::try_from(slots).is_err() {
        return None;
    }
    // The caller alone has the array, and keeps it.
    let heads = unsafe { std::slice::from_raw_parts_mut(heads.buf_ptr() as *mut i32, slots) };
    without_lock(py, count, || follow(data, first, last_offset, heads))
}

/// The header's fields about existing entries.
#[derive(Clone, Copy)]
struct FileTail {
    /// The number that the next entry takes.
    first: i32,
    /// The number of entries that still fit.
    room: usize,
    begin_ms: i64,
}

impl FileTail {
    /// Seconds since the file's first record; for the first entry, since the previous file's end.
    fn seconds(&self, number: usize, time_ms: i64, first_ms: i64) -> i32 {
        let begin_ms = if self.first == 1 && number > 0 { first_ms } else { self.begin_ms };
        if begin_ms <= 0 {
            return 0;
        }
        (time_ms.wrapping_sub(begin_ms).div_euclid(1000)).clamp(0, i32::MAX as i64) as i32
    }
}

#[derive(Default)]
struct Entries {
    block: Vec<u8>,
    /// For each slot that changes, its number and that of its newest entry.
    heads: Vec<u8>,
    opened: usize,
    /// The numbers of the first and the last record that have keys.
    records: (usize, usize),
    last_keys: usize,
}

/// `None` to leave it to Python, also if not all entries fit.
fn entries_of(
    data: &[u8],
    starts: &[i64],
    base: i64,
    slots: &Slots<'_>,
    tail: FileTail,
) -> Option<Entries> {
    let block = memory::with_room(starts.len() * ENTRY_BYTES)?;
    let mut found = Entries { block, ..Entries::default() };
    let mut order: Vec<u64> = memory::with_room(starts.len())?;
    let (mut first_ms, count) = (0, slots.slots.len());
    each_key(data, starts, |at, record, hash| {
        let time_ms = record.head.long(record.frame.stored_at);
        let number = order.len();
        if number == 0 {
            (first_ms, found.records.0) = (time_ms, at);
        }
        found.last_keys = if found.records.1 == at { found.last_keys + 1 } else { 1 };
        found.records.1 = at;
        let mut entry = [0; ENTRY_BYTES];
        entry[..4].copy_from_slice(&hash.to_be_bytes());
        entry[4..12].copy_from_slice(&base.wrapping_add(starts[at]).to_be_bytes());
        let seconds = tail.seconds(number, time_ms, first_ms);
        entry[12..PREVIOUS_AT].copy_from_slice(&seconds.to_be_bytes());
        memory::extend(&mut found.block, &entry)?;
        memory::push(&mut order, ((hash as usize % count) as u64) << 32 | number as u64)
    })?;
    if order.len() > tail.room {
        return None;
    }
    order.sort_unstable(); // by slot: neighbours in the file are read together
    found.heads = memory::with_room(order.len() * HEAD_BYTES)?;
    for same in order.chunk_by(|one, next| one >> 32 == next >> 32) {
        let slot = (same[0] >> 32) as usize;
        let mut previous = slots.get(slot, tail.first);
        found.opened += (previous == 0) as usize;
        for each in same {
            let number = *each as u32 as usize;
            let at = number * ENTRY_BYTES + PREVIOUS_AT;
            found.block[at..at + 4].copy_from_slice(&previous.to_be_bytes());
            previous = tail.first + number as i32;
        }
        memory::extend(&mut found.heads, &(slot as u32).to_ne_bytes())?;
        memory::extend(&mut found.heads, &previous.to_ne_bytes())?;
    }
    Some(found)
}

/// The entries of records, the slots to set once these are written, the number of these slots that
/// were empty, the numbers of the first and the last record with keys, and the last one's number of
/// keys.
type Made<'py> = (Bound<'py, PyMemoryView>, Bound<'py, PyMemoryView>, usize, (usize, usize), usize);

/// The entries that ``IndexFileWriter.put`` would write for the keys of records. Changes nothing.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // the file's shape and header, and a batch
pub fn index_entries<'py>(
    py: Python<'py>,
    file: PyBuffer<u8>,
    slots: usize,
    room: usize,
    first: i32,
    begin_ms: i64,
    view: PyBuffer<u8>,
    base_offset: i64,
    starts: &Bound<'py, PyAny>,
) -> PyResult<Option<Made<'py>>> {
    let fits = i32::try_from(room).is_ok_and(|room| first.checked_add(room).is_some());
    let (true, Some(data), Some(starts), Some(slots)) =
        (fits && first >= 1, octets(&view), numbers(starts), Slots::of(&file, slots))
    else {
        return Ok(None);
    };
    let tail = FileTail { first, room, begin_ms };
    let found =
        without_lock(py, starts.len(), || entries_of(data, &starts, base_offset, &slots, tail));
    let Some(found) = found else {
        return Ok(None);
    };
    let (block, heads) = (Octets::view(py, found.block)?, Octets::view(py, found.heads)?);
    Ok(Some((block, heads, found.opened, found.records, found.last_keys)))
}

/// Set the slots to the written entries, each by one store.
///
/// # Errors
/// For a map that ``index_entries`` would refuse.
#[pyfunction]
pub fn set_slots(
    py: Python<'_>,
    file: PyBuffer<u8>,
    slots: usize,
    heads: PyBuffer<u8>,
) -> PyResult<()> {
    let (Some(slots), Some(heads)) = (Slots::of(&file, slots), octets(&heads)) else {
        return Err(PyValueError::new_err("the map has other slots"));
    };
    without_lock(py, heads.len() / HEAD_BYTES, || {
        for each in heads.chunks_exact(HEAD_BYTES) {
            let word = |at: usize| [each[at], each[at + 1], each[at + 2], each[at + 3]];
            slots.set(u32::from_ne_bytes(word(0)) as usize, i32::from_ne_bytes(word(4)));
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_leads_nowhere_counts_as_empty() {
        let slots: Vec<AtomicU32> = (0..2).map(|_| AtomicU32::new(0)).collect();
        let slots = Slots { slots: &slots };
        for (entry, found) in [(3, 3), (4, 0), (-1, 0), (i32::MAX, 0)] {
            slots.set(1, entry);
            slots.set(2, entry); // there is none
            assert_eq!((slots.get(0, 4), slots.get(1, 4)), (0, found));
        }
    }

    #[test]
    fn entries_are_followed_or_nothing_is_changed() {
        let entry = |hash: i32, offset: i64, seconds: i32, previous: i32| {
            let (ends, times) = (offset.to_be_bytes(), seconds.to_be_bytes());
            [&hash.to_be_bytes()[..], &ends, &times, &previous.to_be_bytes()].concat()
        };
        let good = [entry(3, 7, 0, 2), entry(4, 7, 1, 0), entry(5, 9, 1, 5)].concat();
        let mut heads = [2, 0, 5];
        assert_eq!(follow(&good, 5, 7, &mut heads), Some((1, 9)));
        assert_eq!(heads, [5, 6, 7]);
        for bad in [entry(-1, 9, 0, 0), entry(0, 8, 0, 5), entry(0, 9, -1, 5), entry(0, 9, 0, 4)] {
            assert_eq!(follow(&bad, 8, 9, &mut heads), None);
            assert_eq!(heads, [5, 6, 7]);
            let mut fresh = [2, 0, 5];
            assert_eq!(follow(&[&good[..], &bad].concat(), 5, 7, &mut fresh), None);
            assert_eq!(fresh, [2, 0, 5]);
        }
    }

    #[test]
    fn seconds_are_never_too_many_or_too_few() {
        let tail = |first, begin_ms| FileTail { first, room: 1, begin_ms };
        assert_eq!(tail(5, 1000).seconds(0, 2999, 7), 1);
        assert_eq!(tail(5, 1000).seconds(3, 0, 7), 0);
        assert_eq!(tail(5, 1000).seconds(3, i64::MAX, 7), i32::MAX);
        assert_eq!(tail(5, 0).seconds(3, 9000, 7), 0);
        assert_eq!(tail(1, 0).seconds(0, 9000, 5000), 0);
        assert_eq!(tail(1, 0).seconds(1, 9000, 5000), 4);
    }
}
