//! The scan allocator as seen from outside.

mod examples;
mod random;
