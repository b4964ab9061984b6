//! Constructs objects of a slotted attrs class without a frame of `__init__`, for calls of the
//! class.
//!
//! CPython calls a class through the word `tp_vectorcall` of the class, where there is one.
//! Otherwise it packs the arguments into a tuple and a dict, and unpacks both for `__init__`, at a
//! cost of two thirds of a call. Subclasses do not inherit the word, and calls that raise are left
//! to `type.__call__`. A `__init__` that is replaced afterwards is not called.

use std::os::raw::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::slots::{new_ref, Slots};

const MOST_FIELDS: usize = 16;
const WORD: usize = std::mem::size_of::<usize>();
/// `tp_basicsize` and `tp_vectorcall_offset` in words, as in CPython 3.11 to 3.14.
const AT_BASIC_SIZE: usize = 4;
const AT_VECTORCALL_OFFSET: usize = 7;
const LAYOUT_KNOWN_BELOW: (u8, u8) = (3, 15);

type Call = unsafe extern "C" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;

/// How to construct the class. It is never freed, as the class may be called until the process
/// ends.
struct Constructor {
    slots: Slots,
    names: Vec<Py<PyAny>>,
    /// `None` for required fields, which come first.
    defaults: Vec<Option<Py<PyAny>>>,
    call: Call,
}

static CONSTRUCTOR: AtomicPtr<Constructor> = AtomicPtr::new(null_mut());

/// Let calls of `class` construct its objects here from now on. A second call changes nothing.
///
/// `fields` are name and default of each field in order, or the name alone if it is required.
///
/// # Errors
/// `TypeError` if this Python or the class is not one of those that it can serve.
#[pyfunction]
pub fn construct_natively(
    class: &Bound<'_, PyType>,
    fields: Vec<Bound<'_, PyTuple>>,
) -> PyResult<()> {
    if !CONSTRUCTOR.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let word = vectorcall_word(class)?;
    let call = unsafe { ffi::PyType_GetSlot(&raw mut ffi::PyType_Type, ffi::Py_tp_call) };
    if call.is_null() || fields.len() > MOST_FIELDS {
        return Err(PyTypeError::new_err("a class that cannot be called like others"));
    }
    let made = Constructor {
        slots: Slots::of(class, fields.len())?,
        names: fields.iter().map(|of| Ok(of.get_item(0)?.unbind())).collect::<PyResult<_>>()?,
        defaults: fields.iter().map(|of| of.get_item(1).ok().map(Bound::unbind)).collect(),
        call: unsafe { std::mem::transmute::<*mut c_void, Call>(call) },
    };
    CONSTRUCTOR.store(Box::into_raw(Box::new(made)), Ordering::Release);
    unsafe { *word = construct as *const () as usize };
    Ok(())
}

/// The word of the class, which is empty; the same word of built-in classes has a function.
fn vectorcall_word(class: &Bound<'_, PyType>) -> PyResult<*mut usize> {
    let py = class.py();
    let version = py.version_info();
    let kind = py.get_type::<PyType>();
    let words: usize = kind.getattr("__basicsize__")?.extract::<usize>()? / WORD;
    let word = |of: &Bound<'_, PyType>, at: usize| unsafe { (of.as_ptr() as *mut usize).add(at) };
    let read = |of: &Bound<'_, PyType>, at: usize| unsafe { *word(of, at) };
    let at = read(&kind, AT_VECTORCALL_OFFSET) / WORD;
    let is_known = (version.major, version.minor) < LAYOUT_KNOWN_BELOW
        && class.get_type().is(&kind)
        && read(&kind, AT_BASIC_SIZE) == words * WORD
        && at < words
        && read(&py.get_type::<PyTuple>(), at) != 0
        && read(&py.get_type::<PyDict>(), at) != 0
        && read(class, at) == 0;
    is_known
        .then(|| word(class, at))
        .ok_or_else(|| PyTypeError::new_err("classes of this Python are not laid out as known"))
}

/// `class(*args, **kwargs)`, as CPython's vectorcall protocol passes the arguments.
unsafe extern "C" fn construct(
    class: *mut PyObject,
    args: *const *mut PyObject,
    flagged_count: usize,
    names: *mut PyObject,
) -> *mut PyObject {
    let constructor = &*CONSTRUCTOR.load(Ordering::Acquire);
    let count = flagged_count & (usize::MAX >> 1); // the highest bit is a flag
    let mut values = [null_mut(); MOST_FIELDS];
    if !constructor.collect(args, count, names, &mut values) {
        return constructor.call_plainly(class, args, count, names);
    }
    let made = constructor.slots.instance();
    if !made.is_null() {
        for (field, value) in values.iter().enumerate().take(constructor.names.len()) {
            constructor.slots.set(made, field, new_ref(*value));
        }
    }
    made
}

impl Constructor {
    /// Borrow a value for each field; `false` if a call must raise, or is unusual.
    #[inline(always)]
    unsafe fn collect(
        &self,
        args: *const *mut PyObject,
        count: usize,
        names: *mut PyObject,
        values: &mut [*mut PyObject; MOST_FIELDS],
    ) -> bool {
        let fields = self.names.len();
        if count > fields {
            return false;
        }
        for (at, value) in values.iter_mut().enumerate().take(count) {
            *value = *args.add(at);
        }
        let named = if names.is_null() { 0 } else { ffi::PyTuple_Size(names) as usize };
        let mut from = count;
        for at in 0..named {
            // Names are interned. Most calls name fields in their order.
            let name = ffi::PyTuple_GetItem(names, at as ffi::Py_ssize_t);
            let is_it = |field: &usize| self.names[*field].as_ptr() == name;
            let Some(field) = (from..fields).find(is_it).or_else(|| (count..from).find(is_it))
            else {
                return false;
            };
            if !values[field].is_null() {
                return false;
            }
            values[field] = *args.add(count + at);
            from = field + 1;
        }
        for (value, default) in values.iter_mut().zip(&self.defaults) {
            if value.is_null() {
                match default {
                    Some(default) => *value = default.as_ptr(),
                    None => return false,
                }
            }
        }
        true
    }

    /// As `type.__call__`, which also raises the errors.
    #[cold]
    unsafe fn call_plainly(
        &self,
        class: *mut PyObject,
        args: *const *mut PyObject,
        count: usize,
        names: *mut PyObject,
    ) -> *mut PyObject {
        let tuple = ffi::PyTuple_New(count as ffi::Py_ssize_t);
        let dict = ffi::PyDict_New();
        let mut is_packed = !tuple.is_null() && !dict.is_null();
        if is_packed {
            for at in 0..count {
                ffi::PyTuple_SetItem(tuple, at as ffi::Py_ssize_t, new_ref(*args.add(at)));
            }
            let named = if names.is_null() { 0 } else { ffi::PyTuple_Size(names) };
            for at in 0..named {
                let name = ffi::PyTuple_GetItem(names, at);
                let value = *args.add(count + at as usize);
                is_packed = is_packed && ffi::PyDict_SetItem(dict, name, value) == 0;
            }
        }
        let made = if is_packed { (self.call)(class, tuple, dict) } else { null_mut() };
        ffi::Py_XDECREF(tuple);
        ffi::Py_XDECREF(dict);
        made
    }
}
