//! Spill code in machine code that ptxas made without a cap.

mod corpus;
mod walk;
