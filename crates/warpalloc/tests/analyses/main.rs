//! Every analysis against a slow, obvious oracle, on thousands of random functions.

mod flow;
mod random;
mod values;
