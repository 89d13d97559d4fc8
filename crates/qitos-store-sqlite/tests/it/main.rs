//! Tests of the SQLite store; those of the contract run against the memory store too.

mod bad_data;
mod child;
mod commit_rows;
mod faults;
mod fork;
mod inbox;
mod kill;
mod many_processes;
mod opening;
mod reading;
mod subject;
