//! Reads the plain records at the start of a segment from its file, in one pass and without the
//! interpreter lock: as `lakelog/recovery/proof.py` and `lakelog/format/queue_survey.py`.
//!
//! It ends before the first record that is not whole, or that Python must check: a record with an
//! earlier store time than its predecessor, an inner batch, a record that feeds light queues, or
//! one whose queue offset does not follow.

use std::fs::File;
use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::dispatch::{Groups, PREPARED};
use crate::frame::{Frame, Head, RECORD_MIN_BYTES};
use crate::memory;
use crate::run::Checks;

/// A buffer of this length stays in a processor's cache.
const WINDOW_BYTES: usize = 512 << 10;
const INNER_BATCH: i32 = 0x80;
const LIGHT: &[u8] = b"INNER_MULTI_DISPATCH";

/// The records so far.
#[derive(Default)]
struct Survey {
    end: i64,
    records: i64,
    first_ms: i64,
    last_ms: i64,
    groups: Groups,
    /// By the number of a group, the start of its first record and the end of its last one.
    places: Vec<(i64, i64)>,
}

impl Survey {
    /// Add the record that starts at the end; returns whether it is plain, and there was memory.
    #[inline(always)]
    fn add(&mut self, head: &Head, frame: &Frame, record: &[u8]) -> bool {
        let time_ms = head.long(frame.stored_at);
        let flags = head.sys_flag();
        if time_ms < self.last_ms.max(1)
            || flags & INNER_BATCH != 0
            || contains(&record[frame.properties_at..], LIGHT)
        {
            return false;
        }
        let end = self.end + record.len() as i64;
        if flags & PREPARED == 0 {
            let topic = &record[frame.topic_at..frame.topic_end()];
            if self.places.try_reserve(1).is_err() {
                return false;
            }
            let Some(number) = self.groups.number(topic, head.int(12)) else {
                return false;
            };
            if !self.groups.found[number].add_next(head.long(20)) {
                return false;
            }
            if number == self.places.len() {
                self.places.push((self.end, end)); // there is room
            }
            self.places[number].1 = end;
        }
        if self.records == 0 {
            self.first_ms = time_ms;
        }
        self.records += 1;
        self.last_ms = time_ms;
        self.end = end;
        true
    }

    /// Add the plain records at the start of `data`; returns whether all but a last, partial one
    /// were.
    fn follow(&mut self, data: &[u8], checks: Checks) -> bool {
        let mut rest = data;
        while rest.len() >= RECORD_MIN_BYTES {
            let head = Head::of(rest);
            let Some(frame) = checks.frame(&head, rest, self.end) else {
                return head.size() as i64 > rest.len() as i64;
            };
            let (record, behind) = rest.split_at(head.size() as usize);
            if !self.add(&head, &frame, record) {
                return false;
            }
            rest = behind;
        }
        true
    }

    /// Read on from the file of the segment at `start`, of `length` bytes.
    fn read(&mut self, file: &File, start: i64, length: i64, checks: Checks) {
        let Some(mut buffer) = memory::filled(0, WINDOW_BYTES.min(length as usize)) else {
            return;
        };
        loop {
            let (before, at) = (self.end, self.end - start);
            let most = buffer.len().min((length - at) as usize);
            let read = match file.read_at(&mut buffer[..most], at as u64) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return, // Python reads there again, and reports it
            };
            if !self.follow(&buffer[..read], checks) || self.end == before {
                return;
            }
        }
    }
}

#[inline(always)]
fn contains(text: &[u8], name: &[u8]) -> bool {
    text.iter().enumerate().any(|(at, &byte)| byte == name[0] && text[at..].starts_with(name))
}

/// The end of the records, their number, the store times of the first and the last one in ms, and
/// their queues: topic and queue id, the number of records, the queue offset and the start of the
/// first record, and the end of the last one; `None` if there are none.
type Found<'py> = (i64, i64, i64, i64, Bound<'py, PyList>);

/// The plain records at the start of a file, the segment at `start`, of `length` bytes.
#[pyfunction]
pub fn plain_records(
    py: Python<'_>,
    descriptor: i32,
    start: i64,
    length: i64,
    sealed: bool,
) -> Option<Found<'_>> {
    if descriptor < 0 || length < 1 || start.checked_add(length).is_none() {
        return None;
    }
    // The caller keeps the descriptor open.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let mut found = Survey { end: start, ..Survey::default() };
    py.detach(|| found.read(&file, start, length, Checks { verify: true, sealed }));
    if found.records == 0 {
        return None;
    }
    let queues = found.groups.found.iter().zip(&found.places).map(|(group, &(first, end))| {
        let topic = memory::text(py, &group.topic)?.into_any();
        let [queue, count] = [group.queue_id as i64, group.count as i64];
        let long = |value| memory::long(py, value);
        let numbers = [long(queue)?, long(count)?, long(group.first)?, long(first)?, long(end)?];
        let [queue, count, offset, first, end] = numbers;
        memory::tuple(py, [topic, queue, count, offset, first, end])
    });
    let queues = memory::list(py, queues).ok()?;
    Some((found.end, found.records, found.first_ms, found.last_ms, queues))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_anywhere() {
        for text in [
            &b"INNER_MULTI_DISPATCH"[..],
            b"xIINNER_MULTI_DISPATCH",
            b"INNER_INNER_MULTI_DISPATCHx",
        ] {
            assert!(contains(text, LIGHT));
            assert!(!contains(&text[..text.len() - 2], LIGHT));
        }
    }

    #[test]
    fn no_bytes_are_records() {
        let checks = Checks { verify: true, sealed: false };
        for data in [&[][..], &[0; 90], &[0; 200], &[0xff; 200]] {
            let mut found = Survey::default();
            found.follow(data, checks);
            assert_eq!((found.end, found.records), (0, 0));
        }
    }
}
