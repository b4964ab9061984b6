//! The part of the active segment that is written to, and how.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::record::BLANK_BYTES;

const PAGE: usize = 4096;
const AHEAD: usize = 192 << 10;
/// Number of bytes that other processes may append between two appends of this one.
const MARGIN: usize = 64 << 10;
/// From this number of bytes on, the interpreter lock is released during a write.
const LONG_BYTES: usize = 64 << 10;

/// The part of the active segment that can be written; see `Segments.window`.
#[derive(Clone, Copy, Default)]
pub struct Window {
    pub number: i64,
    segment: i64,
    segment_end: i64,
    reserved: i64,
    /// Memory address of the byte at `mapped_from` of the log; 0 if nothing is mapped.
    address: usize,
    mapped_from: i64,
    mapped_to: i64,
    descriptor: i32,
    /// Records shorter than this go through the map.
    map_below: i64,
    /// Positions in the map: end of the pages made writable, and of this process's last record.
    populated: usize,
    written: usize,
}

impl Window {
    /// Convert a `lakelog.log.segments.Window`.
    pub fn of(found: &Bound<'_, PyTuple>, number: i64) -> PyResult<Window> {
        let long = |at| found.get_item(at)?.extract::<i64>();
        let memory = found.get_item(4)?;
        // The tuple keeps the memory, and is held for as long as the address is used.
        let buffer = pyo3::buffer::PyBuffer::<u8>::get(&memory)?;
        let mapped_from = long(5)?;
        Ok(Window {
            number,
            segment: long(1)?,
            segment_end: long(2)?,
            reserved: long(3)?,
            address: if buffer.readonly() { 0 } else { buffer.buf_ptr() as usize },
            mapped_from,
            mapped_to: if buffer.readonly() {
                mapped_from
            } else {
                mapped_from + buffer.len_bytes() as i64
            },
            descriptor: long(6)? as i32,
            map_below: long(7)?,
            populated: 0,
            written: 0,
        })
    }

    /// Whether `size` bytes fit at `position` without a roll or more blocks.
    #[inline(always)]
    pub fn has_room(&self, position: i64, size: i64, is_durable: bool) -> bool {
        let end = position + size;
        position > self.segment
            && end + BLANK_BYTES as i64 <= self.segment_end
            && end <= self.reserved
            && (is_durable
                || size >= self.map_below
                || (position >= self.mapped_from && end <= self.mapped_to))
    }

    /// If each write is synced, a map would fault each time, as each sync write-protects its pages.
    #[inline(always)]
    pub fn write(
        &mut self,
        py: Python<'_>,
        records: &[u8],
        position: i64,
        is_durable: bool,
    ) -> std::io::Result<()> {
        if is_durable || records.len() as i64 >= self.map_below {
            return match records.len() < LONG_BYTES {
                true => self.write_to_file(records, position),
                false => py.detach(|| self.write_to_file(records, position)),
            };
        }
        let at = (position - self.mapped_from) as usize;
        self.populate(at, at + records.len());
        // `has_room` saw that the records are inside of the map.
        unsafe {
            let to = (self.address as *mut u8).add(at);
            std::ptr::copy_nonoverlapping(records.as_ptr(), to, records.len());
        }
        self.written = at + records.len();
        Ok(())
    }

    fn write_to_file(&self, mut record: &[u8], position: i64) -> std::io::Result<()> {
        let mut at = position - self.segment;
        while !record.is_empty() {
            let (data, length) = (record.as_ptr().cast(), record.len());
            let wrote = unsafe { libc::pwrite(self.descriptor, data, length, at) };
            if wrote < 0 {
                let error = std::io::Error::last_os_error();
                if error.kind() == std::io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            }
            if wrote == 0 {
                return Err(std::io::Error::from_raw_os_error(libc::EIO));
            }
            record = &record[wrote as usize..];
            at += wrote as i64;
        }
        Ok(())
    }

    /// Make the pages writable that the next append writes to, outside of the section. The end of
    /// the log is not read: that would take the cache line of the page from an appending process.
    /// So this begins behind this process's last record in the window.
    ///
    /// A crash leaves the same bytes as without it: the map has allocated blocks only, which read
    /// as zeros, and touching them writes no other byte. If the segment is full by now, or deleted,
    /// the touched pages keep the bytes on disk. Pages behind the end of a file are refused.
    #[inline(always)]
    pub fn warm(&mut self, size: i64) {
        let end = self.written + size as usize + MARGIN;
        if self.written > 0 && size < self.map_below && end > self.populated {
            self.populate(self.written, end);
        }
    }

    /// Make some pages writable at once: one call costs a third of as many faults. A hint.
    #[inline(always)]
    fn populate(&mut self, start: usize, end: usize) {
        if end <= self.populated {
            return;
        }
        let from = start.max(self.populated) & !(PAGE - 1);
        let mapped = (self.mapped_to - self.mapped_from) as usize;
        let to = (start + AHEAD).max(end).min(mapped) & !(PAGE - 1);
        if to > from {
            unsafe {
                let at = (self.address as *mut u8).add(from);
                libc::madvise(at.cast(), to - from, libc::MADV_POPULATE_WRITE);
            }
        }
        self.populated = to.max(end);
    }
}
