//! What a process holds.

use std::time::{Duration, Instant};

/// "Gone within one second" (PRV-96).
pub(crate) const ONE_SECOND: Duration = Duration::from_secs(1);

/// Counts of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOver {
    /// Entries of `/proc/self/fd`.
    descriptors: usize,
    /// Entries of `/proc/self/task`.
    threads: usize,
    /// Tasks of the runtime.
    tasks: usize,
}

impl LeftOver {
    pub(crate) fn count(runtime: &tokio::runtime::Runtime) -> Self {
        let entries = |path: &str| std::fs::read_dir(path).unwrap().count();
        LeftOver {
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            tasks: runtime.metrics().num_alive_tasks(),
        }
    }

    /// Fails unless the process is back at these counts within a second.
    pub(crate) fn assert_no_more(self, runtime: &tokio::runtime::Runtime, place: &str) {
        let until = Instant::now() + ONE_SECOND;
        loop {
            let now = LeftOver::count(runtime);
            let back = now.descriptors <= self.descriptors
                && now.threads <= self.threads
                && now.tasks <= self.tasks;
            if back {
                return;
            }
            assert!(Instant::now() < until, "{place}: {now:?} after {self:?}");
            std::thread::yield_now();
        }
    }
}

/// Bytes of memory that the kernel counts for this process.
pub(crate) fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    resident * 4096
}
