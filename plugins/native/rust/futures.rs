//! The futures of asynchronous puts, settled as `lakelog.log.put_future.settle` does.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::names;

/// Set the results of futures.
///
/// The state is set before the check for waiting threads; a thread that begins to wait adds itself
/// before it checks the state. So no thread is missed.
///
/// Returns the futures for which threads wait. Adds to `awaited` the futures of event loops, and
/// to `called` the futures with callbacks.
#[pyfunction]
pub fn settle<'py>(
    futures: &Bound<'py, PyAny>,
    finished: &Bound<'py, PyString>,
    awaited: &Bound<'py, PyList>,
    called: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyList>> {
    let py = futures.py();
    let waited = PyList::empty(py);
    for future in futures.try_iter()? {
        let future = future?;
        future.setattr(names::RESULT.get(py), future.getattr(names::APPENDED.get(py))?)?;
        future.setattr(names::STATE.get(py), finished)?;
        if !future.getattr(names::GATE.get(py))?.is_none() {
            waited.append(&future)?;
        }
        if let Ok(tasks) = future.getattr(names::AWAITED.get(py))?.cast_into_exact::<PyList>() {
            tasks.iter().try_for_each(|task| awaited.append(task))?;
        }
        if !future.getattr(names::DONE_CALLBACKS.get(py))?.is_empty()? {
            called.append(future)?;
        }
    }
    Ok(waited)
}
