//! What can be wrong with a file.

/// Why a file, or a part of it, can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The content is none of the formats that hold machine code.
    #[error("not a cubin, fatbin, archive or ELF file: it begins with {start}")]
    UnknownFormat {
        /// The first bytes, in hexadecimal.
        start: String,
    },
    /// A host file without device code.
    #[error("no device code: there is no section .nv_fatbin or __nv_relfatbin with an image")]
    NoDeviceCode,
    /// A length, an offset or a value contradicts the format.
    #[error("{region}, offset {offset:#x}: {problem}")]
    Malformed {
        /// The part of the file, such as `.nv.info`.
        region: String,
        /// Where in that part.
        offset: u64,
        /// What is wrong there.
        problem: String,
    },
    /// Understood, but not read.
    #[error("{what} can't be read: {reason}")]
    Unsupported {
        /// What was met.
        what: String,
        /// Why it is not read, and what would help.
        reason: String,
    },
}

impl ObjectError {
    pub(crate) fn malformed(
        region: impl Into<String>,
        offset: impl TryInto<u64>,
        problem: impl Into<String>,
    ) -> ObjectError {
        ObjectError::Malformed {
            region: region.into(),
            offset: offset.try_into().unwrap_or(u64::MAX),
            problem: problem.into(),
        }
    }
}
