//! What a lakelog store does for every message; lakelog's Python code is the rule.
//!
//! Each call answers as the Python one would, or gives `None` and has done nothing.

use pyo3::prelude::*;

mod append;
mod batch;
mod columns;
mod message;
mod page;
mod record;
mod slots;

#[pymodule(name = "_native", gil_used = true)]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<batch::BatchEncoder>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<append::Putter>()?;
    module.add_class::<append::BoundPutter>()?;
    Ok(())
}
