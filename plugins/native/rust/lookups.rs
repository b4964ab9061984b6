//! Looks up messages of one open store, in any role: as `lakelog_queues/finding/`.
//! Unusual cases are left to Python.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};

use crate::bytime;
use crate::get;
use crate::log::{Bounds, Log};
use crate::query;
use crate::run::{answer, given};
use crate::slots::Slots;
use crate::stored::Decoder;
use crate::units::Units;

const RESULT_FIELDS: usize = 5;

/// Looks up messages; one object for the parts of a store that are replaced together.
#[pyclass(module = "lakelog_native")]
pub struct Lookups(Option<Parts>);

/// `LookupParts`.
pub struct Parts {
    pub decoder: Py<Decoder>,
    pub log: Log,
    plain: Option<Py<PyAny>>,
    hash_files: Option<Py<PyAny>>,
    buried: Py<PyAny>,
    refresh: Option<Py<PyAny>>,
    pub most_messages: i64,
    pub most_bytes: i64,
    pub filtered_units: i64,
    pub result: Slots,
    pub status: Py<PyAny>,
    pub no_match: Py<PyAny>,
}

/// Bounds of a queue, and some of its units.
pub struct Queue<'py> {
    pub first: i64,
    pub end: i64,
    pub units: Option<Units<'py>>,
}

#[pymethods]
impl Lookups {
    #[new]
    fn new(decoder: Py<Decoder>, parts: &Bound<'_, PyAny>) -> PyResult<Self> {
        let part = |name| {
            let found = parts.getattr(name)?;
            PyResult::Ok((!found.is_none()).then(|| found.unbind()))
        };
        Ok(Lookups(Some(Parts {
            decoder,
            log: Log::of(parts)?,
            plain: part("plain")?,
            hash_files: part("hash_files")?,
            buried: parts.getattr("buried")?.unbind(),
            refresh: part("refresh")?,
            most_messages: parts.getattr("most_messages")?.extract()?,
            most_bytes: parts.getattr("most_bytes")?.extract()?,
            filtered_units: parts.getattr("filtered_units")?.extract()?,
            result: Slots::of(parts.getattr("result")?.cast::<PyType>()?, RESULT_FIELDS)?,
            status: parts.getattr("status")?.unbind(),
            no_match: parts.getattr("no_match")?.unbind(),
        })))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(parts) = &self.0 else {
            return Ok(());
        };
        parts.log.visit(&visit)?;
        for each in [&parts.plain, &parts.hash_files, &parts.refresh].into_iter().flatten() {
            visit.call(each)?;
        }
        visit.call(&parts.buried)?;
        visit.call(&parts.status)?;
        visit.call(&parts.no_match)
    }

    fn __clear__(&mut self) {
        self.0 = None;
    }

    /// Close the file that is kept open.
    fn close(&self, py: Python<'_>) {
        if let Some(parts) = &self.0 {
            parts.log.close(py);
        }
    }

    /// A `GetResult`; `None` to leave it to Python.
    #[pyo3(signature = (topic, queue_id, offset, max_messages, tag_filter=None))]
    fn get(
        &self,
        topic: &Bound<'_, PyAny>,
        queue_id: &Bound<'_, PyAny>,
        offset: &Bound<'_, PyAny>,
        max_messages: &Bound<'_, PyAny>,
        tag_filter: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        match &self.0 {
            Some(parts) => get::get(parts, topic, queue_id, offset, max_messages, tag_filter),
            None => Ok(None),
        }
    }

    /// The fields of a `RecordsResult` behind the status; `None` to leave it to Python.
    #[allow(clippy::too_many_arguments)] // those of the method that Python calls
    #[pyo3(signature = (topic, queue_id, offset, max_records, max_bytes, verify, tag_filter=None))]
    fn records<'py>(
        &self,
        topic: &Bound<'py, PyAny>,
        queue_id: &Bound<'py, PyAny>,
        offset: &Bound<'py, PyAny>,
        max_records: &Bound<'py, PyAny>,
        max_bytes: i64,
        verify: bool,
        tag_filter: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<get::Records<'py>>> {
        let (queue, Some(parts)) = ([topic, queue_id], &self.0) else {
            return Ok(None);
        };
        get::records(parts, queue, offset, max_records, max_bytes, verify, tag_filter)
    }

    /// The messages, newest first; `None` to leave it to Python.
    fn query<'py>(
        &self,
        topic: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
        since_ms: &Bound<'py, PyAny>,
        until_ms: &Bound<'py, PyAny>,
        max_messages: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        match &self.0 {
            Some(parts) => query::query(parts, topic, key, [since_ms, until_ms], max_messages),
            None => Ok(None),
        }
    }

    /// The queue offset; `None` to leave it to Python.
    fn offset_by_time(
        &self,
        topic: &Bound<'_, PyAny>,
        queue_id: &Bound<'_, PyAny>,
        timestamp_ms: &Bound<'_, PyAny>,
        boundary: &Bound<'_, PyAny>,
    ) -> PyResult<Option<i64>> {
        match &self.0 {
            Some(parts) => bytime::search(parts, topic, queue_id, timestamp_ms, boundary),
            None => Ok(None),
        }
    }
}

impl Parts {
    /// Bring a reader's queues and index up to date; returns the bounds of reads. `None` if Python
    /// must raise an error, or wait for an owner's thread, as the `newest` messages are wanted.
    pub fn begin(&self, py: Python<'_>, newest: bool) -> PyResult<Option<Bounds>> {
        if let Some(refresh) = &self.refresh {
            if given(py, refresh.bind(py).call1((newest,)))?.is_none() {
                return Ok(None);
            }
        } else if newest && self.log.is_behind() {
            return Ok(None);
        }
        self.log.bounds(py)
    }

    /// A queue, and its units from an offset on, or from its first one.
    pub fn queue<'py>(
        &self,
        name: &Bound<'py, PyTuple>,
        minimum: i64,
        offset: Option<i64>,
    ) -> PyResult<Option<Queue<'py>>> {
        let py = name.py();
        let Some(plain) = &self.plain else {
            return Ok(None);
        };
        let Some(place) = answer(py, plain.bind(py).call1((name, minimum, offset)))? else {
            return Ok(None);
        };
        type Place<'py> = (i64, i64, Bound<'py, PyAny>, i64, i64);
        let place = place.extract::<Place<'py>>().ok();
        Ok(place.map(|(first, end, source, position, room)| Queue {
            first,
            end,
            units: Units::of(offset.unwrap_or(first), source, position, room),
        }))
    }

    /// The offset below which records of a topic do not count.
    pub fn buried(&self, topic: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
        let py = topic.py();
        let buried = answer(py, self.buried.bind(py).call1((topic,)))?;
        Ok(buried.and_then(|buried| buried.extract().ok()))
    }

    /// The files of the index; see `HashFiles`.
    pub fn hash_files<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match &self.hash_files {
            Some(hash_files) => answer(py, hash_files.bind(py).call0()),
            None => Ok(None),
        }
    }
}
