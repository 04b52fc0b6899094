//! Graph colouring, seen from outside.

mod choice;
mod examples;
mod impossible;
mod random;
mod scaling;
