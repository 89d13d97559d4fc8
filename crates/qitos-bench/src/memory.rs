//! Memory of this process, as Linux counts it.

/// Bytes of one field of `/proc/self/status`; 0 where there is none.
fn status_bytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or_default()
        * 1_024
}

/// The most that was ever resident, in bytes.
pub(crate) fn peak_bytes() -> u64 {
    status_bytes("VmHWM")
}

/// What is resident now, in bytes.
pub(crate) fn resident_bytes() -> u64 {
    status_bytes("VmRSS")
}
