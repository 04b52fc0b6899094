//! Graph colouring, seen from outside.

mod examples;
mod random;
mod scaling;
