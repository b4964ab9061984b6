//! The futures of asynchronous puts, settled as `lakelog.log.put_future.settle` does.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::names;

/// Give the futures their results. One that has a lock, since somebody waits for it in a thread, is
/// left to Python.
///
/// No Python code runs between the look at a future's lock and the change of its state, so nobody
/// can make the lock in between.
///
/// Returns the futures that are left; adds to `awaited` what event loops await, and to `called` the
/// futures with callbacks.
#[pyfunction]
pub fn settle<'py>(
    futures: &Bound<'py, PyAny>,
    finished: &Bound<'py, PyString>,
    awaited: &Bound<'py, PyList>,
    called: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyList>> {
    let py = futures.py();
    let left = PyList::empty(py);
    for future in futures.try_iter()? {
        let future = future?;
        future.setattr(names::RESULT.get(py), future.getattr(names::APPENDED.get(py))?)?;
        if !future.getattr(names::GATE.get(py))?.is_none() {
            left.append(future)?;
            continue;
        }
        future.setattr(names::STATE.get(py), finished)?;
        if let Ok(tasks) = future.getattr(names::AWAITED.get(py))?.cast_into_exact::<PyList>() {
            tasks.iter().try_for_each(|task| awaited.append(task))?;
        }
        if !future.getattr(names::DONE_CALLBACKS.get(py))?.is_empty()? {
            called.append(future)?;
        }
    }
    Ok(left)
}
