//! Names as the source has them.

use std::fmt;

use cpp_demangle::{DemangleOptions, DemangleWrite, ParseOptions, Symbol};

/// Template arguments can repeat each other without end; a longer name helps nobody.
const MAX_BYTES: usize = 16 * 1024;
const RECURSION_LIMIT: u32 = 256;

/// The name of a C++ symbol as the source has it; `None` where it isn't mangled.
pub fn demangle(name: &str) -> Option<String> {
    if !name.starts_with("_Z") {
        return None;
    }
    let parsing = ParseOptions::default().recursion_limit(RECURSION_LIMIT);
    let symbol = Symbol::new_with_options(name, &parsing).ok()?;
    let options = DemangleOptions::new().recursion_limit(RECURSION_LIMIT);
    let mut out = Bounded(String::new());
    symbol.structured_demangle(&mut out, &options).ok()?;
    Some(out.0)
}

/// Refuses to grow beyond [`MAX_BYTES`].
struct Bounded(String);

impl DemangleWrite for Bounded {
    fn write_string(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}
