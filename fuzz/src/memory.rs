//! How much memory reading an input may take (PRV-60).

use peak_alloc::PeakAlloc;

/// Counts what is allocated; every target installs it as its allocator.
pub static PEAK: PeakAlloc = PeakAlloc;

/// What reading may take whatever the input: buffers and the growth of the runtime's own tables.
const ROOM: usize = 1024 * 1024;
/// Bytes per byte of input: the shortest JSON value (`0,`) becomes a tree node in a doubling vector.
const FACTOR: usize = 256;

/// Runs `read` and fails if its allocations ever exceed the bound for an input of `length` bytes.
pub(crate) fn bounded<T>(length: usize, read: impl FnOnce() -> T) -> T {
    PEAK.reset_peak_usage();
    let before = PEAK.current_usage();
    let result = read();
    let taken = PEAK.peak_usage().saturating_sub(before);
    let bound = ROOM + FACTOR * length;
    assert!(
        taken <= bound,
        "PRV-60: {taken} bytes for an input of {length}"
    );
    result
}
