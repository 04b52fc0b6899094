//! Graph colouring, seen from outside.

mod random;
