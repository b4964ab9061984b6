//! Maps of a process's own files, read-only. Nothing of lakelog cuts such a file while it is open,
//! but another program may, and a load behind its end kills the process. So a map is used only as
//! long as the file has its full length. Files of other processes are read by `pread`.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::names;

/// How long the length of a file is trusted, in ticks of the processor: some 20 us, fewer than ten
/// look-ups take. The clock of the system takes a tenth of a look-up.
const TRUSTED: u64 = 50_000;

/// A map of a whole file.
#[pyclass(module = "lakelog_native", frozen)]
pub struct FileMap {
    descriptor: i32,
    _own: Option<File>,
    start: *const u8,
    length: usize,
    checked: AtomicU64,
    process: u32,
}

// The memory is never written here. It is unmapped with the object, when no thread holds the
// object.
unsafe impl Send for FileMap {}
unsafe impl Sync for FileMap {}

impl FileMap {
    /// `None` if the file is empty, or cannot be mapped. The descriptor must stay open as long as
    /// the map is used: it is that of `own`, or of whoever holds the map.
    pub fn of(descriptor: i32, own: Option<File>) -> Option<FileMap> {
        let length = length_of(descriptor).filter(|&length| length > 0)?;
        let start = unsafe {
            let (protection, kind) = (libc::PROT_READ, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), length, protection, kind, descriptor, 0)
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        // A forked child uses nothing of its parent's store, and must not keep its disk busy.
        unsafe { libc::madvise(start, length, libc::MADV_DONTFORK) };
        let (start, checked) = (start as *const u8, AtomicU64::new(ticks()));
        let process = std::process::id();
        Some(FileMap { descriptor, _own: own, start, length, checked, process })
    }

    /// All bytes, for a short while; `None` if the file was cut.
    #[inline(always)]
    pub fn bytes(&self) -> Option<&[u8]> {
        let now = ticks();
        if now.wrapping_sub(self.checked.load(Ordering::Relaxed)) > TRUSTED {
            if length_of(self.descriptor)? < self.length {
                return None;
            }
            self.checked.store(now, Ordering::Relaxed);
        }
        Some(self.unchecked())
    }

    /// All bytes, of which none may be read, only prefetched: that does nothing for what was cut.
    #[inline(always)]
    pub fn unchecked(&self) -> &[u8] {
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        if std::process::id() == self.process {
            unsafe { libc::munmap(self.start as *mut libc::c_void, self.length) };
        }
    }
}

/// The map that an open file of Python keeps as `own_map`, made at its first use. `None` if the
/// file is another process's, or cannot be mapped.
pub fn own_map<'py>(file: &Bound<'py, PyAny>, descriptor: i32) -> Option<Bound<'py, FileMap>> {
    let py = file.py();
    let found = file.getattr(names::OWN_MAP.get(py)).ok()?;
    if found.is(PyBool::new(py, false)) {
        return None;
    }
    match found.cast_into_exact::<FileMap>() {
        Ok(map) => Some(map),
        Err(_) => {
            let made = Bound::new(py, FileMap::of(descriptor, None)?).ok()?;
            file.setattr(names::OWN_MAP.get(py), &made).ok()?;
            Some(made)
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn length_of(descriptor: i32) -> Option<usize> {
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let done = unsafe { libc::fstat(descriptor, &mut found) };
    (done == 0).then(|| usize::try_from(found.st_size).ok()).flatten()
}
