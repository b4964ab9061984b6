//! The log for look-ups: the offsets between which it can be read, and its bytes, which are not
//! trusted. As `lakelog/log/sources.py`. Files of others are read by `pread`: a load from the map
//! of a file that was cut ends the process. A process reads its own files by a `FileMap`.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::num::NonZero;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};

use crate::maps::FileMap;
use crate::memory;
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
    limits: Limits,
    folder: PathBuf,
    recent: Mutex<Recent>,
    /// The segments of a staged writer, which are not all in files yet.
    staged: Option<Py<PyDict>>,
    /// An owner's maps of its segments, by start; it drops those of deleted segments.
    maps: Option<Py<PyDict>>,
}

/// Where the log begins and ends.
enum Limits {
    /// By the shared page, in its owner.
    Page(Page),
    /// By a `ReadBounds`.
    Bounds(Py<PyAny>),
}

/// Bytes of one segment, for the length of a call.
pub enum Piece {
    /// From an offset on.
    Viewed(i64, PyBuffer<u8>),
    /// A segment that starts at an offset, and its length.
    File(i64, Arc<File>, i64),
    /// A whole segment that starts at an offset.
    Mapped(i64, Py<FileMap>),
}

/// The file that was opened last. Calls that follow one another at once use it again.
#[derive(Default)]
struct Recent {
    file: Option<(i64, Arc<File>, Instant)>,
    is_closed: bool,
}

/// Number of segments kept mapped.
const MOST_MAPS: usize = 64;

impl Log {
    /// The log of `LookupParts`.
    pub fn of(parts: &Bound<'_, PyAny>) -> PyResult<Log> {
        let log = parts.getattr("log")?;
        let segment_bytes: NonZero<i64> = log.getattr("segment_bytes")?.extract()?;
        let (memory, staged) = (log.getattr("memory")?, log.getattr("staged")?);
        let limits = match memory.is_none() {
            true => Limits::Bounds(log.getattr("bounds")?.unbind()),
            false => Limits::Page(Page::of(&memory, &parts.getattr("layout")?)?),
        };
        let dict = |found: Bound<'_, PyAny>| match found.is_none() {
            true => PyResult::Ok(None),
            false => Ok(Some(found.cast_into::<PyDict>()?.unbind())),
        };
        let (staged, maps) = (dict(staged)?, dict(log.getattr("maps")?)?);
        let folder = log.getattr("folder")?.extract()?;
        let recent = Mutex::default();
        Ok(Log { segment_bytes: segment_bytes.get(), limits, folder, recent, staged, maps })
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Limits::Bounds(bounds) = &self.limits {
            visit.call(bounds)?;
        }
        visit.call(&self.staged)?;
        visit.call(&self.maps)
    }

    /// `None` to leave it to Python.
    pub fn bounds(&self, py: Python<'_>) -> PyResult<Option<Bounds>> {
        match &self.limits {
            Limits::Page(page) => Ok(page.bounds()),
            Limits::Bounds(bounds) => {
                let minimum = given(py, bounds.bind(py).call_method0(names::MINIMUM.get(py)))?;
                let end = given(py, bounds.bind(py).call_method0(names::END.get(py)))?;
                let minimum = minimum.and_then(|minimum| minimum.extract::<i64>().ok());
                let end = end.and_then(|end| end.extract::<Option<i64>>().ok());
                Ok(minimum.zip(end.map(|end| end.unwrap_or(i64::MAX))))
            }
        }
    }

    /// Whether queues and index of an owner lack records that can be read.
    pub fn is_behind(&self) -> bool {
        match &self.limits {
            Limits::Page(page) => page.is_behind(),
            Limits::Bounds(_) => false,
        }
    }

    /// `before`, or the present end of an owner's log.
    #[inline(always)]
    pub fn later(&self, before: Bounds) -> Option<Bounds> {
        match &self.limits {
            Limits::Page(page) => page.bounds(),
            Limits::Bounds(_) => Some(before),
        }
    }

    /// Close the file that is kept open, and end maps; no other file is kept from now on.
    pub fn close(&self, py: Python<'_>) {
        if let Some(maps) = &self.maps {
            maps.bind(py).clear();
        }
        if let Ok(mut recent) = self.recent.lock() {
            *recent = Recent { file: None, is_closed: true };
        }
    }

    /// Whether segments are read in memory.
    pub fn is_mapped(&self) -> bool {
        self.maps.is_some()
    }

    /// The offset at which the segment of an offset starts.
    pub fn start(&self, offset: i64) -> i64 {
        offset - offset.rem_euclid(self.segment_bytes)
    }

    /// A view of `length` bytes from `offset` on, fewer at the end of the segment; `None` if it
    /// is neither open nor a file.
    #[inline(always)]
    pub fn piece(&self, py: Python<'_>, offset: i64, length: i64) -> PyResult<Option<Piece>> {
        if let Some(staged) = &self.staged {
            let within = offset - self.start(offset);
            let length = length.min(self.segment_bytes - within);
            let found = viewed(staged.bind(py), offset - within, within, length)?;
            return Ok(found.map(|view| Piece::Viewed(offset, view)));
        }
        Ok(self.whole(py, offset))
    }

    /// The whole segment of an offset; `None` if it is not a file.
    #[inline(always)]
    pub fn whole(&self, py: Python<'_>, offset: i64) -> Option<Piece> {
        let start = self.start(offset);
        if self.staged.is_some() {
            return None;
        }
        if let Some(maps) = &self.maps {
            let map = mapped(maps.bind(py), start, &self.folder)?;
            return Some(Piece::Mapped(start, map));
        }
        let file = self.recent.lock().ok()?.opened(&self.folder, start)?;
        Some(Piece::File(start, file, self.segment_bytes))
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
                let file = Arc::new(regular(folder.join(format!("{start:020}")))?); // of bounded length
                if !self.is_closed {
                    self.file = Some((start, file.clone(), now + TRUSTED));
                }
                Some(file)
            }
        }
    }
}

/// The map of the segment at `start`, made at its first use.
#[inline(always)]
fn mapped(maps: &Bound<'_, PyDict>, start: i64, folder: &Path) -> Option<Py<FileMap>> {
    let map = maps.get_item(start).ok().flatten().and_then(|map| map.cast_into_exact().ok());
    match map {
        Some(map) => Some(map.unbind()),
        None => {
            let file = regular(folder.join(format!("{start:020}")))?; // of bounded length
            let map = Py::new(maps.py(), FileMap::of(file.as_raw_fd(), Some(file))?).ok()?;
            if maps.len() >= MOST_MAPS {
                maps.clear();
            }
            maps.set_item(start, &map).ok()?;
            Some(map)
        }
    }
}

/// As `Segments.view` of a segment that is open.
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
    let view = match segment.call_method1(names::VIEW.get(py), (within, length)) {
        Err(error) if error.is_instance_of::<PyValueError>(py) => return Ok(None), // closed
        called => called,
    };
    let Some(view) = answer(py, view)? else {
        return Ok(None);
    };
    // If the segment was closed meanwhile, the view may be of another file.
    let is_open = find().is_some_and(|again| again.is(&segment));
    Ok(if is_open { PyBuffer::get(&view).ok() } else { None })
}

/// `pread` until `into` is full or the file ends; returns the number of bytes.
pub fn read_at(descriptor: i32, into: &mut [u8], at: u64) -> Option<usize> {
    let mut done = 0;
    while done < into.len() {
        let rest = &mut into[done..];
        let (place, at) = (rest.as_mut_ptr().cast(), libc::off_t::try_from(at).ok()?);
        let read = unsafe { libc::pread(descriptor, place, rest.len(), at + done as libc::off_t) };
        match usize::try_from(read) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(_) if std::io::Error::last_os_error().kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(done)
}

/// As `lakelog.files.access.open_regular`.
fn regular(path: PathBuf) -> Option<File> {
    let file = OpenOptions::new().read(true).custom_flags(GUARDED).open(path).ok()?;
    let is_regular = file.metadata().ok()?.is_file();
    (is_regular && file.as_raw_fd() > STANDARD_ERROR).then_some(file)
}

impl Piece {
    /// At most `length` bytes from `offset` on, fewer where there are no more.
    #[inline(always)]
    pub fn bytes<'a>(
        &'a self,
        offset: i64,
        length: i64,
        read: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        let length = usize::try_from(length).ok()?;
        match self {
            Piece::Viewed(first, view) => {
                let data = octets(view)?;
                let at = usize::try_from(offset.checked_sub(*first)?).ok()?;
                data.get(at..at.saturating_add(length).min(data.len()))
            }
            Piece::Mapped(start, map) => {
                let data = map.get().bytes()?;
                let at = usize::try_from(offset.checked_sub(*start)?).ok()?;
                data.get(at..at.saturating_add(length).min(data.len()))
            }
            Piece::File(start, file, most) => {
                let at = u64::try_from(offset.checked_sub(*start)?).ok()?;
                let rest = usize::try_from(most.checked_sub(at as i64)?).ok()?;
                memory::resize(read, length.min(rest))?;
                let length = read_at(file.as_raw_fd(), read, at)?;
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
    dispatched: usize,
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
            dispatched: at("DISPATCHED")?,
            appended: at("APPENDED")?,
            flushed: at("FLUSHED")?,
            flags: at("FLAGS")?,
            durable: layout.getattr("DURABLE")?.extract()?,
        })
    }

    #[inline(always)]
    fn bounds(&self) -> Option<Bounds> {
        let minimum = self.words.get(self.minimum);
        Some((i64::try_from(minimum).ok()?, i64::try_from(self.end()).ok()?))
    }

    #[inline(always)]
    fn end(&self) -> u64 {
        let is_durable = self.words.get(self.flags) & self.durable != 0;
        self.words.get(if is_durable { self.flushed } else { self.appended })
    }

    #[inline(always)]
    fn is_behind(&self) -> bool {
        self.words.get(self.dispatched) < self.end()
    }
}
