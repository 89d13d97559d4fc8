//! What the roots of recent heads reference, so that a commit checks closure without reading its parent.

use std::collections::HashMap;
use std::mem;

use qitos_contracts::digest::Digest;
use qitos_contracts::snapshot::KnownReferences;

/// Sessions remembered per generation of the cache.
const REMEMBERED: usize = 2_048;

/// Two generations of a map: what was not used since the last turn is forgotten at the next.
///
/// Keyed by root digest, which fixes the references, so an entry is never wrong, only missing.
#[derive(Debug, Default)]
pub(crate) struct ReferenceCache {
    recent: HashMap<Digest, KnownReferences>,
    older: HashMap<Digest, KnownReferences>,
}

impl ReferenceCache {
    /// Takes the entry out: the commit that asks puts its successor in.
    pub(crate) fn take(&mut self, root: &Digest) -> Option<KnownReferences> {
        self.recent.remove(root).or_else(|| self.older.remove(root))
    }

    pub(crate) fn put(&mut self, root: Digest, known: KnownReferences) {
        if self.recent.len() >= REMEMBERED {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(root, known);
    }
}
