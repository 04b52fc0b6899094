//! Tests of rows that need more than one file.
