//! Bytes made without the interpreter lock, and passed to Python without a copy.

use std::os::raw::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

#[pyclass(frozen)]
pub struct Octets(Vec<u8>);

impl Octets {
    /// A view that owns them.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn view(py: Python<'_>, bytes: Vec<u8>) -> PyResult<Bound<'_, PyMemoryView>> {
        PyMemoryView::from(Bound::new(py, Octets(bytes))?.as_any())
    }
}

#[pymethods]
impl Octets {
    /// # Safety
    /// `view` is filled in by Python.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = &slf.get().0;
        let length = ffi::Py_ssize_t::try_from(bytes.len())
            .map_err(|_| PyBufferError::new_err("too many bytes"))?;
        let start = bytes.as_ptr() as *mut std::os::raw::c_void;
        // Read-only; the view holds the object, whose bytes never move.
        if ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) < 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }
}
