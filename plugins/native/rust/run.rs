//! Parses many records at once, consecutive or at given places, to checked columns, without the
//! interpreter lock. As `lakelog/format/record_batch.py`.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::frame::{Frame, Head, RECORD_MIN_BYTES};
use crate::memory;
use crate::octets::Octets;

/// Below this size, releasing the interpreter lock is not worth its cost.
pub const ALONE_BYTES: usize = 32 << 10;
const LONGS: usize = 13;
const INTS: usize = 7;
const LINE_BYTES: usize = 64;
/// Distance in records to the record that is prefetched, and the most bytes of it.
const AHEAD: usize = 4;
const MOST_AHEAD_BYTES: usize = 4096;

/// The bytes of a buffer; `None` if it is not contiguous.
///
/// Other processes may write to them: they are read, never trusted.
pub fn octets(buffer: &PyBuffer<u8>) -> Option<&[u8]> {
    if !buffer.is_c_contiguous() {
        return None;
    }
    if buffer.len_bytes() == 0 {
        return Some(&[]);
    }
    // The buffer is held by the caller for as long as the slice is used.
    Some(unsafe { std::slice::from_raw_parts(buffer.buf_ptr() as *const u8, buffer.len_bytes()) })
}

/// The columns of a `RecordBatch`, in the order of its `LONGS` and `INTS`.
#[derive(Default)]
struct Columns {
    longs: [Vec<i64>; LONGS],
    ints: [Vec<i32>; INTS],
}

impl Columns {
    fn of(at_once: usize) -> Option<Columns> {
        let mut made = Columns::default();
        for column in &mut made.longs {
            *column = memory::with_room(at_once)?;
        }
        for column in &mut made.ints {
            *column = memory::with_room(at_once)?;
        }
        Some(made)
    }

    fn len(&self) -> usize {
        self.longs[0].len()
    }

    #[inline(always)]
    fn add(&mut self, start: usize, head: &Head, frame: &Frame) -> Option<()> {
        let place = |within: usize| (start + within) as i64;
        let suffix = frame.body_at - 16;
        let longs = [
            start as i64,
            head.long(20),
            head.physical_offset(),
            head.long(40),
            head.long(frame.stored_at),
            head.long(suffix + 4),
            place(frame.stored_at),
            place(frame.body_at),
            (frame.body_end - frame.body_at) as i64,
            place(frame.topic_at),
            (frame.topic_end() - frame.topic_at) as i64,
            place(frame.properties_at),
            head.size() as i64 - frame.properties_at as i64,
        ];
        let ints = [
            head.size(),
            head.int(4),
            head.int(8),
            head.int(12),
            head.int(16),
            head.sys_flag(),
            head.int(suffix),
        ];
        for (column, value) in self.longs.iter_mut().zip(longs) {
            memory::push(column, value)?;
        }
        for (column, value) in self.ints.iter_mut().zip(ints) {
            memory::push(column, value)?;
        }
        Some(())
    }

    /// All columns, one after the other, in machine byte order.
    fn bytes(&self) -> Option<Vec<u8>> {
        let mut all = memory::with_room(self.len() * (LONGS * 8 + INTS * 4))?;
        for value in self.longs.iter().flatten() {
            memory::extend(&mut all, &value.to_ne_bytes())?;
        }
        for value in self.ints.iter().flatten() {
            memory::extend(&mut all, &value.to_ne_bytes())?;
        }
        Some(all)
    }
}

/// The requested checks.
#[derive(Clone, Copy)]
pub struct Checks {
    pub verify: bool,
    pub sealed: bool,
}

impl Checks {
    /// The parts of the record at the start of `data`, if it is whole and states `offset`.
    #[inline(always)]
    pub fn frame(self, head: &Head, data: &[u8], offset: i64) -> Option<Frame> {
        let size = usize::try_from(head.size()).ok()?;
        let record = data.get(..size)?;
        if head.physical_offset() != offset {
            return None;
        }
        let frame = Frame::read(head, record)?;
        let good = frame.has_text(record)
            && (!self.verify || frame.holds(head, record, offset))
            && (!self.sealed || frame.is_sealed(record));
        good.then_some(frame)
    }
}

/// `None` without memory.
fn follow(data: &[u8], base: i64, checks: Checks, most: usize) -> Option<Columns> {
    // A guess, so that short runs take no more than they need, and long ones grow seldom.
    let mut found = Columns::of((data.len() / 256).clamp(1, 1024).min(most))?;
    let mut at = 0;
    while found.len() < most && data.len() - at >= RECORD_MIN_BYTES {
        let head = Head::of(&data[at..]);
        let Some(offset) = base.checked_add(at as i64) else {
            break;
        };
        let Some(frame) = checks.frame(&head, &data[at..], offset) else {
            break;
        };
        found.add(at, &head, &frame)?;
        at += head.size() as usize;
    }
    Some(found)
}

/// As ``decode_run``: the columns of the records at the start of ``view``.
#[pyfunction]
pub fn read_run<'py>(
    py: Python<'py>,
    view: PyBuffer<u8>,
    base_offset: &Bound<'py, PyAny>,
    verify: bool,
    sealed: bool,
    max_records: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
    let (Some(data), Some(base_offset), Some(max_records)) =
        (octets(&view), long(base_offset), long(max_records))
    else {
        return Ok(None);
    };
    let checks = Checks { verify, sealed };
    let most = usize::try_from(max_records).unwrap_or(0);
    let columns = || follow(data, base_offset, checks, most)?.bytes();
    let columns = if data.len() < ALONE_BYTES { columns() } else { py.detach(columns) };
    columns.map(|columns| Octets::view(py, columns)).transpose()
}

/// Bytes and offsets, as Arrow has them.
type Bodies<'py> = (Bound<'py, PyMemoryView>, Bound<'py, PyMemoryView>);

/// A record at a given place: its start in the buffer, its offset and length.
type Pointed = (i64, i64, i32);

/// The result of `sound_records`, except for the bodies.
struct Checked {
    /// A byte each, 1 if the record is whole.
    good: Vec<u8>,
    columns: Columns,
    bodies: Option<Packed>,
}

/// The longest body of a record of that size.
fn most_of(size: i32) -> i64 {
    (size as i64 - RECORD_MIN_BYTES as i64).max(0)
}

/// Bodies back to back: copied right after the check, while they are in the processor's cache.
struct Packed {
    bytes: Vec<u8>,
    /// The start of each, and the end of the last.
    offsets: Vec<u8>,
}

impl Packed {
    /// `None` if they may be longer than Arrow's `binary` can be.
    fn of(pointed: &[Pointed]) -> Option<Packed> {
        let most: i64 = pointed.iter().map(|&(_, _, size)| most_of(size)).sum();
        i32::try_from(most).ok()?;
        let mut made = Packed {
            bytes: memory::with_room(most as usize)?,
            offsets: memory::with_room(4 * (pointed.len() + 1))?,
        };
        made.add(&[])?;
        Some(made)
    }

    #[inline(always)]
    fn add(&mut self, body: &[u8]) -> Option<()> {
        memory::extend(&mut self.bytes, body)?;
        memory::extend(&mut self.offsets, &(self.bytes.len() as i32).to_ne_bytes())
    }
}

/// Prefetch a record that is checked soon. The records of one queue are apart in the log, so the
/// processor does not prefetch them by itself.
#[inline(always)]
fn prefetch(data: &[u8], start: i64, size: i32) {
    let from = usize::try_from(start).unwrap_or(usize::MAX).min(data.len());
    let length = usize::try_from(size).unwrap_or(0).min(MOST_AHEAD_BYTES).min(data.len() - from);
    for line in data[from..from + length].chunks(LINE_BYTES) {
        #[cfg(target_arch = "x86_64")]
        unsafe {
            use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line; // no instruction for it in stable Rust
    }
}

/// `None` if a record extends past the buffer.
fn check(data: &[u8], pointed: &[Pointed], verify: bool, pack: bool) -> Option<Checked> {
    let checks = Checks { verify, sealed: false };
    let mut good = memory::with_room(pointed.len())?;
    let mut columns = Columns::of(pointed.len())?;
    let mut bodies = if pack { Packed::of(pointed) } else { None };
    for (number, &(start, offset, size)) in pointed.iter().enumerate() {
        if let Some(&(start, _, size)) = pointed.get(number + AHEAD) {
            prefetch(data, start, size);
        }
        let (at, size) = (usize::try_from(start).ok()?, usize::try_from(size).ok()?);
        let record = data.get(at..at.checked_add(size)?)?;
        if size < RECORD_MIN_BYTES {
            return None;
        }
        let head = Head::of(record);
        let frame = (head.size() as i64 == size as i64)
            .then(|| checks.frame(&head, record, offset))
            .flatten();
        memory::push(&mut good, frame.is_some() as u8)?;
        if let Some(frame) = frame {
            columns.add(at, &head, &frame)?;
            if let Some(bodies) = &mut bodies {
                bodies.add(&record[frame.body_at..frame.body_end])?;
            }
        }
    }
    Some(Checked { good, columns, bodies })
}

/// The result of a call; `None` if the system refused something, as it will refuse Python again.
/// Any other exception is raised: one of a signal handler does not come a second time.
pub fn answer<'py>(
    py: Python<'py>,
    called: PyResult<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(given(py, called)?.filter(|given| !given.is_none()))
}

/// The same for a call that may return Python's `None`.
pub fn given<'py>(
    py: Python<'py>,
    called: PyResult<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match called {
        Ok(given) => Ok(Some(given)),
        Err(error) if error.is_instance_of::<PyOSError>(py) => {
            let is_of_system = error.value(py).getattr("errno").is_ok_and(|each| !each.is_none());
            if is_of_system {
                Ok(None)
            } else {
                Err(error)
            }
        }
        Err(error) => Err(error),
    }
}

/// An integer; `None` if it does not fit in 64 bits, or if it is of another type.
pub fn long(value: &Bound<'_, PyAny>) -> Option<i64> {
    value.extract().ok()
}

/// A column of integers; `None` where it is of another kind.
pub fn numbers<T: Element + Default>(column: &Bound<'_, PyAny>) -> Option<Vec<T>> {
    let buffer = PyBuffer::<T>::get(column).ok()?;
    let mut made = memory::filled(T::default(), buffer.item_count())?;
    buffer.copy_to_slice(column.py(), &mut made).ok()?;
    Some(made)
}

/// As ``sound_records``: a byte for each record, the columns of those that are whole, and their
/// bodies.
#[pyfunction]
#[allow(clippy::type_complexity)] // Python gets a tuple
pub fn sound_records<'py>(
    py: Python<'py>,
    view: PyBuffer<u8>,
    starts: &Bound<'py, PyAny>,
    offsets: &Bound<'py, PyAny>,
    sizes: &Bound<'py, PyAny>,
    verify: bool,
    pack_bodies: bool,
) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyMemoryView>, Option<Bodies<'py>>)>> {
    let (Some(data), Some(starts), Some(offsets), Some(sizes)) =
        (octets(&view), numbers(starts), numbers(offsets), numbers(sizes))
    else {
        return Ok(None);
    };
    if starts.len() != offsets.len() || starts.len() != sizes.len() {
        return Ok(None);
    }
    let zipped = starts.into_iter().zip(offsets).zip(sizes);
    let pointed = zipped.map(|((start, offset), size)| (start, offset, size));
    let Some(pointed) = memory::collected::<Pointed>(pointed) else {
        return Ok(None);
    };
    let bytes: i64 = pointed.iter().map(|&(_, _, size)| size as i64).sum();
    let found = if bytes < ALONE_BYTES as i64 {
        check(data, &pointed, verify, pack_bodies)
    } else {
        py.detach(|| check(data, &pointed, verify, pack_bodies))
    };
    let Some(Checked { good, columns, bodies }) = found else {
        return Ok(None);
    };
    let bodies = match bodies {
        Some(Packed { bytes, offsets }) => {
            Some((Octets::view(py, bytes)?, Octets::view(py, offsets)?))
        }
        None => None,
    };
    let Some(columns) = columns.bytes() else {
        return Ok(None);
    };
    Ok(Some((memory::bytes(py, &good)?, Octets::view(py, columns)?, bodies)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_found_in_bytes_that_are_no_records() {
        let checks = Checks { verify: true, sealed: false };
        for data in [&[][..], &[0; 90], &[0; 200], &[0xff; 200]] {
            assert_eq!(follow(data, i64::MAX, checks, 10).unwrap().len(), 0);
        }
    }

    #[test]
    fn a_place_outside_of_the_buffer_is_not_judged() {
        for (start, size) in [(-1, 91), (0, 101), (10, 91), (i64::MAX, i32::MAX), (0, -1), (0, 90)]
        {
            for before in 0..=AHEAD {
                let mut pointed = vec![(9, 0, 91); before];
                pointed.push((start, 0, size));
                assert!(check(&[0; 100], &pointed, true, true).is_none());
            }
        }
        let found = check(&[0; 100], &[(9, 0, 91)], true, true).unwrap();
        assert_eq!((found.good, found.columns.len()), (vec![0], 0));
        assert!(found.bodies.unwrap().bytes.is_empty());
    }
}
