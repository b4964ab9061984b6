//! The log for look-ups: the offsets between which it can be read, and its bytes. An owner reads
//! its segments in memory. Other processes read files, whose bytes are not trusted, by `pread`: a
//! map of one that is cut short ends the process. As `lakelog/log/sources.py` and
//! `lakelog/log/sources.py`.

use std::fs::{File, OpenOptions};
use std::num::NonZero;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};

use crate::names;
use crate::page::Words;
use crate::run::{answer, given, octets};

const GUARDED: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
const STANDARD_ERROR: i32 = 2;

/// Longest time for which an open file is used again, as `lakelog.log.sources.TRUSTED_S`.
const TRUSTED: Duration = Duration::from_millis(1);

/// The first byte in the log, and the end of reads.
pub type Bounds = (i64, i64);

/// One log.
pub struct Log {
    pub segment_bytes: i64,
    kind: Kind,
}

enum Kind {
    Owned { page: Page, open: Py<PyDict> },
    Files { bounds: Py<PyAny>, folder: PathBuf, recent: Mutex<Recent> },
}

/// Bytes of one segment, for the length of a call.
pub enum Piece {
    /// From an offset on.
    Mapped(i64, PyBuffer<u8>),
    /// A segment that starts at an offset, and its length.
    File(i64, Arc<File>, i64),
}

/// The file that was opened last. Calls that follow one another at once use it again.
#[derive(Default)]
struct Recent {
    file: Option<(i64, Arc<File>, Instant)>,
    is_closed: bool,
}

impl Log {
    /// The log of `LookupParts`.
    pub fn of(parts: &Bound<'_, PyAny>) -> PyResult<Log> {
        let log = parts.getattr("log")?;
        let segment_bytes: NonZero<i64> = log.getattr("segment_bytes")?.extract()?;
        let kind = if log.hasattr("memory")? {
            Kind::Owned {
                page: Page::of(&log.getattr("memory")?, &parts.getattr("layout")?)?,
                open: log.getattr("open_segments")?.cast_into::<PyDict>()?.unbind(),
            }
        } else {
            Kind::Files {
                bounds: log.getattr("bounds")?.unbind(),
                folder: log.getattr("folder")?.extract()?,
                recent: Mutex::default(),
            }
        };
        Ok(Log { segment_bytes: segment_bytes.get(), kind })
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.kind {
            Kind::Owned { open, .. } => visit.call(open),
            Kind::Files { bounds, .. } => visit.call(bounds),
        }
    }

    /// `None` to leave it to Python.
    pub fn bounds(&self, py: Python<'_>) -> PyResult<Option<Bounds>> {
        match &self.kind {
            Kind::Owned { page, .. } => Ok(page.bounds()),
            Kind::Files { bounds, .. } => {
                let minimum = given(py, bounds.bind(py).call_method0(names::MINIMUM.get(py)))?;
                let end = given(py, bounds.bind(py).call_method0(names::END.get(py)))?;
                let minimum = minimum.and_then(|minimum| minimum.extract::<i64>().ok());
                let end = end.and_then(|end| end.extract::<Option<i64>>().ok());
                Ok(minimum.zip(end.map(|end| end.unwrap_or(i64::MAX))))
            }
        }
    }

    /// `before`, or the present end of an owner's log.
    #[inline(always)]
    pub fn later(&self, before: Bounds) -> Option<Bounds> {
        match &self.kind {
            Kind::Owned { page, .. } => page.bounds(),
            Kind::Files { .. } => Some(before),
        }
    }

    /// Whether this process owns the log, and reads it in memory.
    pub fn is_owned(&self) -> bool {
        matches!(self.kind, Kind::Owned { .. })
    }

    /// Close the file that is kept open; no other is kept from now on.
    pub fn close(&self) {
        if let Kind::Files { recent, .. } = &self.kind {
            if let Ok(mut recent) = recent.lock() {
                *recent = Recent { file: None, is_closed: true };
            }
        }
    }

    /// The offset at which the segment of an offset starts.
    pub fn start(&self, offset: i64) -> i64 {
        offset - offset.rem_euclid(self.segment_bytes)
    }

    /// A view of `length` bytes from `offset` on, fewer at the end of the segment; `None` if it
    /// is neither mapped nor a file.
    #[inline(always)]
    pub fn piece(&self, py: Python<'_>, offset: i64, length: i64) -> PyResult<Option<Piece>> {
        if let Some(whole) = self.whole(py, offset)? {
            return Ok(Some(whole));
        }
        match &self.kind {
            Kind::Owned { open, .. } => {
                let within = offset - self.start(offset);
                let length = length.min(self.segment_bytes - within);
                let found = viewed(open.bind(py), offset - within, within, length)?;
                Ok(found.map(|view| Piece::Mapped(offset, view)))
            }
            Kind::Files { .. } => Ok(None),
        }
    }

    /// The whole segment of an offset; `None` if it is not all in memory and not a file.
    #[inline(always)]
    pub fn whole(&self, py: Python<'_>, offset: i64) -> PyResult<Option<Piece>> {
        let start = self.start(offset);
        match &self.kind {
            Kind::Owned { open, .. } => {
                let segment = open.bind(py).get_item(start).ok().flatten();
                let memory = match segment {
                    Some(segment) => segment.getattr_opt(names::MEMORY.get(py)).ok().flatten(),
                    None => None,
                };
                let memory = memory.and_then(|memory| PyBuffer::get(&memory).ok());
                Ok(memory.map(|memory| Piece::Mapped(start, memory)))
            }
            Kind::Files { folder, recent, .. } => {
                let file = recent.lock().ok().and_then(|mut recent| recent.opened(folder, start));
                Ok(file.map(|file| Piece::File(start, file, self.segment_bytes)))
            }
        }
    }
}

impl Recent {
    /// The file of the segment at `start`.
    fn opened(&mut self, folder: &Path, start: i64) -> Option<Arc<File>> {
        let now = Instant::now();
        match &self.file {
            Some((at, file, until)) if *at == start && now < *until => Some(file.clone()),
            _ => {
                self.file = None;
                let file = Arc::new(regular(folder.join(format!("{start:020}")))?);
                if !self.is_closed {
                    self.file = Some((start, file.clone(), now + TRUSTED));
                }
                Some(file)
            }
        }
    }
}

/// As `Segments.view` of a segment that is open, and not all in memory.
#[cold]
fn viewed(
    open: &Bound<'_, PyDict>,
    start: i64,
    within: i64,
    length: i64,
) -> PyResult<Option<PyBuffer<u8>>> {
    let find = || open.get_item(start).ok().flatten();
    let Some(segment) = find() else {
        return Ok(None);
    };
    let py = open.py();
    let view = segment.call_method1(names::VIEW.get(py), (within, length));
    let Some(view) = answer(py, view)? else {
        return Ok(None);
    };
    // If the segment was closed meanwhile, the view may be of another file.
    let is_open = find().is_some_and(|again| again.is(&segment));
    Ok(if is_open { PyBuffer::get(&view).ok() } else { None })
}

/// As `lakelog.files.access.open_regular`.
fn regular(path: PathBuf) -> Option<File> {
    let file = OpenOptions::new().read(true).custom_flags(GUARDED).open(path).ok()?;
    let is_regular = file.metadata().ok()?.is_file();
    (is_regular && file.as_raw_fd() > STANDARD_ERROR).then_some(file)
}

impl Piece {
    /// At most `length` bytes from `offset` on, fewer where there are no more.
    ///
    /// The bytes of a map may change meanwhile.
    #[inline(always)]
    pub fn bytes<'a>(
        &'a self,
        offset: i64,
        length: i64,
        read: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        let length = usize::try_from(length).ok()?;
        match self {
            Piece::Mapped(first, view) => {
                let data = octets(view)?;
                let at = usize::try_from(offset.checked_sub(*first)?).ok()?;
                data.get(at..at.saturating_add(length).min(data.len()))
            }
            Piece::File(start, file, most) => {
                let at = u64::try_from(offset.checked_sub(*start)?).ok()?;
                let rest = usize::try_from(most.checked_sub(at as i64)?).ok()?;
                read.resize(length.min(rest), 0);
                let length = file.read_at(read, at).ok()?;
                read.get(..length)
            }
        }
    }
}

/// The bounds between which an owner reads its log, by the page; as
/// `lakelog.log.sources.OwnedBounds`.
struct Page {
    words: Words,
    minimum: usize,
    appended: usize,
    flushed: usize,
    flags: usize,
    durable: u64,
}

impl Page {
    fn of(memory: &Bound<'_, PyAny>, layout: &Bound<'_, PyAny>) -> PyResult<Page> {
        let at = |name| layout.getattr(name)?.extract::<usize>();
        Ok(Page {
            words: Words::of(memory)?,
            minimum: at("MINIMUM")?,
            appended: at("APPENDED")?,
            flushed: at("FLUSHED")?,
            flags: at("FLAGS")?,
            durable: layout.getattr("DURABLE")?.extract()?,
        })
    }

    #[inline(always)]
    fn bounds(&self) -> Option<Bounds> {
        let is_durable = self.words.get(self.flags) & self.durable != 0;
        let end = self.words.get(if is_durable { self.flushed } else { self.appended });
        Some((i64::try_from(self.words.get(self.minimum)).ok()?, i64::try_from(end).ok()?))
    }
}
