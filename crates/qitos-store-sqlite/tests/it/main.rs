//! Tests of the SQLite store; those of the contract run against the memory store too.

#[cfg(test)]
mod bad_data;
#[cfg(test)]
mod child;
#[cfg(test)]
mod closing;
#[cfg(test)]
mod commit_rows;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fork;
#[cfg(test)]
mod inbox;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod many_processes;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod subject;
#[cfg(test)]
mod wrong_stores;
