//! Every size bound that more than one crate needs, in one file.
