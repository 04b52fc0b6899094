//! `warpalloc._warpalloc`: what the Python package `warpalloc` calls.
//!
//! Values cross as text and bytes, reports as JSON; `python/warpalloc` gives them types.

use pyo3::prelude::*;

/// The native half of the package `warpalloc`.
#[pymodule]
mod _warpalloc {
    use std::path::PathBuf;

    use pyo3::create_exception;
    use pyo3::exceptions::PyException;
    use pyo3::prelude::*;
    use pyo3::types::PyBytes;
    use warpalloc_cli::call::{self, Failure, Measured};

    create_exception!(
        warpalloc,
        Error,
        PyException,
        "What the command would print as an error."
    );
    create_exception!(
        warpalloc,
        UsageError,
        Error,
        "The call itself makes no sense: the command would exit with 2."
    );

    fn raised(failure: Failure) -> PyErr {
        match failure.is_usage {
            true => UsageError::new_err(failure.text),
            false => Error::new_err(failure.text),
        }
    }

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// PTX, machine code, the report as JSON, warnings, notes.
    type Allocated = (
        String,
        Option<Py<PyBytes>>,
        String,
        Vec<String>,
        Vec<String>,
    );

    /// `warpalloc alloc` of a text.
    #[pyfunction]
    fn allocate(
        py: Python<'_>,
        name: &str,
        text: Vec<u8>,
        machine_code: bool,
        flags: Vec<String>,
    ) -> PyResult<Allocated> {
        let made = py.detach(|| call::allocate(name, text, machine_code, &flags));
        let made = made.map_err(raised)?;
        let cubin = made.cubin.map(|cubin| PyBytes::new(py, &cubin).unbind());
        let report = made.report.to_string();
        Ok((made.ptx, cubin, report, made.warnings, made.notes))
    }

    /// `warpalloc stats --json` of a file.
    #[pyfunction]
    fn stats_of_file(py: Python<'_>, path: PathBuf, flags: Vec<String>) -> PyResult<String> {
        let made = py.detach(|| call::stats(Measured::File(&path), &flags));
        Ok(made.map_err(raised)?.to_string())
    }

    /// `warpalloc stats --json` of the content of a file.
    #[pyfunction]
    fn stats_of_content(
        py: Python<'_>,
        name: &str,
        content: Vec<u8>,
        flags: Vec<String>,
    ) -> PyResult<String> {
        let made = py.detach(|| call::stats(Measured::Content(name, content), &flags));
        Ok(made.map_err(raised)?.to_string())
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        module.add("Error", py.get_type::<Error>())?;
        module.add("UsageError", py.get_type::<UsageError>())
    }
}
