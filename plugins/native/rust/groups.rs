//! What a member of a group does for each message: `lakelog_queues/groups/read_ahead.py` and
//! `lakelog_queues/groups/leases.py`.

use pyo3::exceptions::{PySystemError, PyTypeError};
use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use crate::memory;
use crate::names;
use crate::slots::new_ref;

const FIELDS: Py_ssize_t = 8;
/// Messages of one lease.
const RUN: i64 = 64;

/// `tuple.__new__(kind, …)` for many tuples; the tuple of the fields is used again.
struct Maker {
    make: ffi::newfunc,
    fields: *mut PyObject,
    arguments: *mut PyObject,
}

impl Maker {
    fn new(py: Python<'_>) -> PyResult<Maker> {
        unsafe {
            let make = ffi::PyType_GetSlot(&raw mut ffi::PyTuple_Type, ffi::Py_tp_new);
            let fields = ffi::PyTuple_New(FIELDS);
            let arguments = if fields.is_null() { fields } else { ffi::PyTuple_New(1) };
            if make.is_null() || arguments.is_null() {
                ffi::Py_XDECREF(fields);
                return Err(PyErr::take(py).unwrap_or_else(|| PySystemError::new_err("no tuple")));
            }
            ffi::PyTuple_SetItem(arguments, 0, fields);
            let make = std::mem::transmute::<*mut std::os::raw::c_void, ffi::newfunc>(make);
            Ok(Maker { make, fields, arguments })
        }
    }

    /// `fields` are given away, also on an error; null stands for one that could not be made.
    unsafe fn make(
        &self,
        kind: &Bound<'_, PyType>,
        fields: [*mut PyObject; FIELDS as usize],
    ) -> PyResult<*mut PyObject> {
        let is_whole = !fields.iter().any(|each| each.is_null());
        for (at, field) in fields.into_iter().enumerate() {
            ffi::PyTuple_SetItem(self.fields, at as Py_ssize_t, field);
        }
        let made = if is_whole {
            (self.make)(kind.as_type_ptr(), self.arguments, std::ptr::null_mut())
        } else {
            std::ptr::null_mut()
        };
        if made.is_null() {
            Err(PyErr::fetch(kind.py()))
        } else {
            Ok(made)
        }
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        unsafe { ffi::Py_DECREF(self.arguments) };
    }
}

/// As `Reserved.deliveries`.
///
/// `rows` have the offset in the log, an object with the attribute `queue`, the queue offset, and
/// the message; `places` those of their leases. From `begin` to `end` they are handed out.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // the columns of a `Reserved`
pub fn deliveries<'py>(
    kind: &Bound<'py, PyType>,
    rows: &Bound<'py, PyList>,
    places: &Bound<'py, PyList>,
    number: &Bound<'py, PyAny>,
    begin: usize,
    end: usize,
    taken_ms: &Bound<'py, PyAny>,
    visible_ms: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let py = kind.py();
    if !kind.is_subclass_of::<PyTuple>()? {
        return Err(PyTypeError::new_err("the class of a delivery is a tuple"));
    }
    let (maker, found) = (Maker::new(py)?, PyList::empty(py));
    let mut last: Option<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> = None;
    for at in begin..end {
        let row = rows.get_item(at)?.cast_into_exact::<PyTuple>()?;
        let (ahead, offset, message) = (row.get_item(1)?, row.get_item(2)?, row.get_item(3)?);
        if last.as_ref().is_none_or(|(before, _)| !before.is(&ahead)) {
            let queue = ahead.getattr(names::QUEUE.get(py))?.cast_into::<PyTuple>()?;
            last = Some((ahead, queue));
        }
        let queue = &last.as_ref().expect("set above").1;
        let returns: i64 = message.getattr(names::RECONSUME_TIMES.get(py))?.extract()?;
        let attempt = memory::long(py, returns + 1)?;
        let handle = memory::tuple(py, [places.get_item(at)?, number.clone(), offset.clone()])?;
        let fields = [
            message.into_ptr(),
            queue.get_item(0)?.into_ptr(),
            queue.get_item(1)?.into_ptr(),
            offset.into_ptr(),
            attempt.into_ptr(),
            unsafe { new_ref(taken_ms.as_ptr()) },
            unsafe { new_ref(visible_ms.as_ptr()) },
            handle.into_ptr(),
        ];
        let made = unsafe { Bound::from_owned_ptr(py, maker.make(kind, fields)?) };
        found.append(made)?;
    }
    Ok(found)
}

/// As `lakelog_queues.groups.leases.bits_of`: the bits of `handles` in each reserve.
///
/// `None` for a handle that is not of `reserved`.
#[pyfunction]
pub fn bits_of(
    handles: &Bound<'_, PyList>,
    reserved: &Bound<'_, PyDict>,
) -> PyResult<Option<Vec<(u64, u64)>>> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    let mut last: Option<(Bound<'_, PyAny>, Bound<'_, PyAny>, i64, usize)> = None;
    for handle in handles.iter() {
        let Ok(handle) = handle.cast_into_exact::<PyTuple>() else { return Ok(None) };
        if handle.len() != 3 {
            return Ok(None);
        }
        let (lease, number) = (handle.get_item(0)?, handle.get_item(1)?);
        let is_last = |each: &(Bound<'_, PyAny>, Bound<'_, PyAny>, i64, usize)| {
            each.0.is(&lease) && each.1.is(&number)
        };
        if !last.as_ref().is_some_and(is_last) {
            let Some(known) = reserved.get_item(&lease)? else { return Ok(None) };
            let (reserve, start, own): (u64, i64, Bound<'_, PyAny>) = known.extract()?;
            if !own.eq(&number)? {
                return Ok(None);
            }
            let known = found.iter().position(|each| each.0 == reserve);
            let at = known.unwrap_or(found.len());
            if known.is_none() && memory::push(&mut found, (reserve, 0)).is_none() {
                return Ok(None);
            }
            last = Some((lease, number, start, at));
        }
        let (_, _, start, at) = last.as_ref().expect("set above");
        let bit = handle.get_item(2)?.extract::<i64>()? - start;
        if !(0..RUN).contains(&bit) {
            return Ok(None);
        }
        found[*at].1 |= 1 << bit;
    }
    Ok(Some(found))
}
