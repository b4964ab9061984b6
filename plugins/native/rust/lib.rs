//! The work per message of a lakelog store; lakelog's Python code is the specification.
//!
//! Each call returns the result of its Python counterpart, or `None` without side effects.

use pyo3::prelude::*;

mod append;
mod batch;
mod bytime;
mod columns;
mod construct;
mod dispatch;
mod entries;
mod frame;
mod futures;
mod get;
mod groups;
mod index;
mod log;
mod lookups;
mod maps;
mod memory;
mod message;
mod names;
mod octets;
mod page;
mod query;
mod record;
mod run;
mod slots;
mod stored;
mod survey;
mod units;
mod waiters;
mod window;

#[pymodule(name = "_native", gil_used = true)]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    names::intern(module.py());
    module.add_class::<batch::BatchEncoder>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<append::Putter>()?;
    module.add_class::<page::AppendLock>()?;
    module.add_class::<append::BoundPutter>()?;
    module.add_class::<stored::Decoder>()?;
    module.add_class::<lookups::Lookups>()?;
    module.add_class::<maps::FileMap>()?;
    module.add_class::<octets::Octets>()?;
    module.add_class::<waiters::Waiters>()?;
    module.add_function(wrap_pyfunction!(construct::construct_natively, module)?)?;
    module.add_function(wrap_pyfunction!(futures::settle, module)?)?;
    module.add_function(wrap_pyfunction!(groups::deliveries, module)?)?;
    module.add_function(wrap_pyfunction!(groups::bits_of, module)?)?;
    module.add_function(wrap_pyfunction!(run::read_run, module)?)?;
    module.add_function(wrap_pyfunction!(run::sound_records, module)?)?;
    module.add_function(wrap_pyfunction!(survey::plain_records, module)?)?;
    module.add_function(wrap_pyfunction!(dispatch::queue_units, module)?)?;
    module.add_function(wrap_pyfunction!(dispatch::keys, module)?)?;
    module.add_function(wrap_pyfunction!(entries::index_entries, module)?)?;
    module.add_function(wrap_pyfunction!(entries::follow_entries, module)?)?;
    module.add_function(wrap_pyfunction!(entries::set_slots, module)?)?;
    Ok(())
}
