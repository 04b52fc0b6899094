//! PTX in, allocated PTX out.
