//! Memory whose size depends on input: `None` without it, where the library of Rust would abort the
//! process. The call is then left to Python, which raises `MemoryError`. Python objects are made so
//! that a lack of memory is an error: the library for them would panic.
//!
//! Only this module allocates such memory: see `tests/test_architecture.py`.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

/// An empty vector with room for `count` elements.
pub fn with_room<T>(count: usize) -> Option<Vec<T>> {
    let mut made = Vec::new();
    made.try_reserve_exact(count).ok()?;
    Some(made)
}

/// A vector of `count` times `value`.
pub fn filled<T: Clone>(value: T, count: usize) -> Option<Vec<T>> {
    let mut made = with_room(count)?;
    made.resize(count, value);
    Some(made)
}

pub fn copied<T: Copy>(from: &[T]) -> Option<Vec<T>> {
    let mut made = with_room(from.len())?;
    made.extend_from_slice(from);
    Some(made)
}

/// All elements of `from`, which are not more than it states.
pub fn collected<T>(from: impl ExactSizeIterator<Item = T>) -> Option<Vec<T>> {
    let mut made = with_room(from.len())?;
    made.extend(from);
    Some(made)
}

#[inline(always)]
pub fn push<T>(to: &mut Vec<T>, value: T) -> Option<()> {
    to.try_reserve(1).ok()?;
    to.push(value);
    Some(())
}

#[inline(always)]
pub fn extend<T: Copy>(to: &mut Vec<T>, by: &[T]) -> Option<()> {
    to.try_reserve(by.len()).ok()?;
    to.extend_from_slice(by);
    Some(())
}

/// Set the length; new elements are 0.
pub fn resize<T: Clone + Default>(all: &mut Vec<T>, length: usize) -> Option<()> {
    all.try_reserve(length.saturating_sub(all.len())).ok()?;
    all.resize(length, T::default());
    Some(())
}

/// # Errors
/// If there is no memory, as all below.
pub fn bytes<'py>(py: Python<'py>, from: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    unsafe {
        let (start, length) = (from.as_ptr().cast(), from.len() as ffi::Py_ssize_t);
        let made = ffi::PyBytes_FromStringAndSize(start, length);
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked())
    }
}

/// A `str`, also where the bytes are not UTF-8: that is an error.
pub fn text<'py>(py: Python<'py>, from: &[u8]) -> PyResult<Bound<'py, PyString>> {
    unsafe {
        let (start, length) = (from.as_ptr().cast(), from.len() as ffi::Py_ssize_t);
        let made = ffi::PyUnicode_FromStringAndSize(start, length);
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked())
    }
}

pub fn long(py: Python<'_>, value: i64) -> PyResult<Bound<'_, PyAny>> {
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromLongLong(value)) }
}

/// The objects of `from`, of which the first error is returned.
pub fn list<'py, T>(
    py: Python<'py>,
    from: impl ExactSizeIterator<Item = PyResult<Bound<'py, T>>>,
) -> PyResult<Bound<'py, PyList>> {
    unsafe {
        let made = ffi::PyList_New(from.len() as ffi::Py_ssize_t);
        let made = Bound::from_owned_ptr_or_err(py, made)?;
        for (at, each) in from.enumerate() {
            ffi::PyList_SetItem(made.as_ptr(), at as ffi::Py_ssize_t, each?.into_ptr());
        }
        Ok(made.cast_into_unchecked())
    }
}

pub fn tuple<'py, const N: usize>(
    py: Python<'py>,
    from: [Bound<'py, PyAny>; N],
) -> PyResult<Bound<'py, PyTuple>> {
    unsafe {
        let made = Bound::from_owned_ptr_or_err(py, ffi::PyTuple_New(N as ffi::Py_ssize_t))?;
        for (at, each) in from.into_iter().enumerate() {
            ffi::PyTuple_SetItem(made.as_ptr(), at as ffi::Py_ssize_t, each.into_ptr());
        }
        Ok(made.cast_into_unchecked())
    }
}

/// The elements of a sequence of Python; `None` if one is of another type, too.
pub fn extracted<T: for<'a> FromPyObject<'a, 'a>>(from: &Bound<'_, PyAny>) -> Option<Vec<T>> {
    let mut made = with_room(from.len().ok()?)?;
    for each in from.try_iter().ok()? {
        push(&mut made, each.ok()?.extract().ok()?)?;
    }
    Some(made)
}
