//! The program as its users see it: processes, files, exit statuses.

#[cfg(test)]
mod arguments;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod exits;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod program;
#[cfg(test)]
mod project;
#[cfg(test)]
mod provider;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod signals;
