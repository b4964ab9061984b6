//! The futures of asynchronous puts, settled as `lakelog.log.put_future.settle` does.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::names;

/// Set the results of futures. A future with a lock, which a waiting thread has made, is left to
/// Python.
///
/// No Python code runs between the check for a lock and the change of the state, so no lock can be
/// made in between.
///
/// Returns the futures that are left to Python. Adds to `awaited` the futures of event loops, and
/// to `called` the futures with callbacks.
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
