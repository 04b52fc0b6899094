//! Graph colouring, seen from outside.

mod choice;
mod examples;
mod random;
mod scaling;
