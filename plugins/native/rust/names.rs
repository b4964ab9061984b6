//! Names of Python attributes, interned once when the module is imported.
//!
//! `pyo3::intern!` does it at the first use, and waits for the interpreter lock in the middle. A
//! process forked at that moment finds the name being made by a thread that it does not have, and
//! waits forever. An import cannot be interrupted so: `lakelog.runtime.forks` lets it end first.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

pub struct Name {
    text: &'static str,
    interned: PyOnceLock<Py<PyString>>,
}

impl Name {
    const fn of(text: &'static str) -> Name {
        Name { text, interned: PyOnceLock::new() }
    }

    #[inline(always)]
    pub fn get<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        self.interned.get(py).expect("interned by the import").bind(py)
    }
}

macro_rules! names {
    ($($name:ident = $text:literal)*) => {
        $(pub static $name: Name = Name::of($text);)*
        const ALL: &[&Name] = &[$(&$name),*];
    };
}

names! {
    ADVANCE = "advance"
    APPENDED = "appended"
    ASKED = "asked"
    AWAITED = "_awaited"
    DESCRIPTOR = "descriptor"
    DONE_CALLBACKS = "_done_callbacks"
    DROPPED = "dropped"
    END = "end"
    FILENO = "fileno"
    GATE = "_gate"
    IS_SETTLED = "is_settled"
    MEMORY = "memory"
    MINIMUM = "minimum"
    MOVED = "moved"
    NEXT = "next"
    OWN_MAP = "own_map"
    QUEUE = "queue"
    RECONSUME_TIMES = "reconsume_times"
    REFUSAL = "refusal"
    RESULT = "_result"
    SLEEPER = "sleeper"
    STATE = "_state"
    VIEW = "view"
    WINDOW = "window"
}

/// Intern all names; called by the import.
pub fn intern(py: Python<'_>) {
    for name in ALL {
        name.interned.get_or_init(py, || PyString::intern(py, name.text).unbind());
    }
}
