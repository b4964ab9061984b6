//! Units of a queue: the places of its records. A process that owns its queue files reads them in
//! memory, other processes by `pread`. As `lakelog_queues/files/folders.py`.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::frame::RECORD_MIN_BYTES;
use crate::log::read_at;
use crate::maps::{own_map, FileMap};
use crate::memory;
use crate::names;
use crate::run::octets;

pub const UNIT_BYTES: usize = 20;

/// The place of a record, from its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    pub offset: i64,
    pub size: i32,
    pub tags_code: i64,
}

impl Unit {
    #[inline(always)]
    fn of(raw: &[u8]) -> Option<Unit> {
        let raw: [u8; UNIT_BYTES] = raw.get(..UNIT_BYTES)?.try_into().ok()?;
        let raw = std::hint::black_box(raw); // read once: it may change meanwhile
        let long = |at: usize| Some(i64::from_be_bytes(raw[at..at + 8].try_into().ok()?));
        let size = i32::from_be_bytes(raw[8..12].try_into().ok()?);
        Some(Unit { offset: long(0)?, size, tags_code: long(12)? })
    }

    pub fn end(self) -> Option<i64> {
        self.offset.checked_add(self.size as i64)
    }

    /// Whether it names a possible record between two offsets.
    pub fn is_between(self, (first, end): (i64, i64)) -> bool {
        self.size >= RECORD_MIN_BYTES as i32
            && self.offset >= first
            && self.end().is_some_and(|own| own <= end)
    }
}

/// Consecutive units of one queue, for the length of a call: `PlainUnits`.
pub struct Units<'py> {
    first: i64,
    position: usize,
    room: i64,
    source: Source<'py>,
}

enum Source<'py> {
    Mapped(Bound<'py, FileMap>),
    /// A `CachedFile`.
    File(Bound<'py, PyAny>),
    Held(PyBuffer<u8>),
}

impl<'py> Units<'py> {
    /// Units from queue offset `first` on; `None` if they cannot be read.
    pub fn of(
        first: i64,
        source: Bound<'py, PyAny>,
        position: i64,
        room: i64,
    ) -> Option<Units<'py>> {
        let position = usize::try_from(position).ok()?;
        Some(Units { first, position, room, source: Source::of(source)? })
    }

    pub fn holds(&self, start: i64, count: i64) -> bool {
        self.first <= start && start - self.first <= self.room - count
    }

    /// The largest possible number of units from the first one on.
    pub fn room(&self) -> i64 {
        self.room
    }

    /// `count` units from queue offset `start` on; `None` if they cannot be read.
    pub fn read(&self, start: i64, count: i64) -> Option<Vec<Unit>> {
        if count < 1 || !self.holds(start, count) {
            return None;
        }
        let at = usize::try_from(start - self.first).ok()?.checked_mul(UNIT_BYTES)?;
        let (at, length) = (self.position.checked_add(at)?, count as usize * UNIT_BYTES);
        let units = |raw: &[u8]| {
            let mut made = memory::with_room(count as usize)?;
            for each in raw.chunks_exact(UNIT_BYTES) {
                memory::push(&mut made, Unit::of(each)?)?;
            }
            Some(made)
        };
        match &self.source {
            Source::Mapped(map) => units(map.get().bytes()?.get(at..at + length)?),
            Source::Held(buffer) => units(octets(buffer)?.get(at..at + length)?),
            Source::File(opened) => {
                let mut raw = memory::filled(0, length)?;
                let read = read_at(descriptor_of(opened)?, &mut raw, at as u64)?;
                (read == length).then(|| units(&raw)).flatten()
            }
        }
    }

    /// The unit of queue offset `at`; `None` if it is not in memory.
    #[inline(always)]
    pub fn one(&self, at: i64) -> Option<Unit> {
        let within = usize::try_from(at.checked_sub(self.first)?).ok()?.checked_mul(UNIT_BYTES)?;
        let position = self.position.checked_add(within)?;
        let data = match &self.source {
            Source::Mapped(map) => map.get().bytes()?,
            Source::Held(buffer) => octets(buffer)?,
            Source::File(_) => return None,
        };
        Unit::of(data.get(position..)?).filter(|_| self.holds(at, 1))
    }

    /// Whether reading units one by one needs no system call.
    pub fn are_in_memory(&self) -> bool {
        !matches!(self.source, Source::File(..))
    }
}

impl<'py> Source<'py> {
    /// The source in a `CachedFile`, or in bytes.
    fn of(source: Bound<'py, PyAny>) -> Option<Source<'py>> {
        match source.getattr(names::DROPPED.get(source.py())) {
            Ok(_) => {
                let descriptor = descriptor_of(&source)?;
                Some(match own_map(&source, descriptor) {
                    Some(map) => Source::Mapped(map),
                    None => Source::File(source),
                })
            }
            Err(_) => PyBuffer::get(&source).ok().map(Source::Held),
        }
    }
}

/// The descriptor of a `CachedFile`, which stays its own while the interpreter lock is held.
fn descriptor_of(opened: &Bound<'_, PyAny>) -> Option<i32> {
    let py = opened.py();
    if opened.getattr(names::DROPPED.get(py)).ok()?.is_truthy().ok()? {
        return None;
    }
    opened.getattr(names::DESCRIPTOR.get(py)).ok()?.extract().ok().filter(|&found| found >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(offset: i64, size: i32) -> Unit {
        let mut raw = [7u8; UNIT_BYTES];
        raw[..8].copy_from_slice(&offset.to_be_bytes());
        raw[8..12].copy_from_slice(&size.to_be_bytes());
        Unit::of(&raw).unwrap()
    }

    #[test]
    fn only_what_may_be_a_record_between_the_bounds_is_looked_at() {
        assert!(unit(100, 91).is_between((100, 191)));
        assert!(!unit(99, 91).is_between((100, 191)));
        assert!(!unit(101, 91).is_between((100, 191)));
        for (offset, size) in [(0, 90), (0, 0), (0, -1), (-5, 100), (i64::MAX, 91)] {
            assert!(!unit(offset, size).is_between((0, i64::MAX)));
        }
        assert!(Unit::of(&[0; 19]).is_none());
    }
}
