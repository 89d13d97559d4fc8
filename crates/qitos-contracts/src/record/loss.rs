//! What a record does not hold any more, counted (TRJ-13, TRJ-14).

use std::borrow::Cow;

use crate::canonical_json::ValueWriter;

/// The policy of a record that nothing was taken from.
pub const NO_LOSS_POLICY: &str = "qitos.loss/none";
/// The scope of an entry whose producer named none.
pub const DEFAULT_SCOPE: &str = "record";
/// The consequence of an entry whose producer named none.
pub const DEFAULT_CONSEQUENCE: &str = "information_unavailable";

/// One kind of loss and how often it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossEntry {
    /// What happened, such as `sensitive_key`.
    pub code: Cow<'static, str>,
    /// Where, such as `payload`.
    pub scope: Cow<'static, str>,
    /// What it means for a reader.
    pub consequence: Cow<'static, str>,
    /// How often.
    pub count: u64,
}

/// The loss of one record or document.
///
/// `is_lossless` of the wire form is derived: it holds exactly when there are no entries. Entries are
/// unique per (scope, code, consequence) and sorted in that order, counts are at least 1 (TRJ-14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    policy_id: Cow<'static, str>,
    entries: Vec<LossEntry>,
}

impl Default for Loss {
    fn default() -> Self {
        Loss::none()
    }
}

impl Loss {
    /// Nothing was lost.
    #[must_use]
    pub const fn none() -> Self {
        Loss {
            policy_id: Cow::Borrowed(NO_LOSS_POLICY),
            entries: Vec::new(),
        }
    }

    /// A loss under `policy_id` without entries yet.
    #[must_use]
    pub fn under(policy_id: impl Into<Cow<'static, str>>) -> Self {
        Loss {
            policy_id: policy_id.into(),
            entries: Vec::new(),
        }
    }

    /// The policies, joined by `+` in the order in which they were applied.
    #[must_use]
    pub fn policy_id(&self) -> &str {
        &self.policy_id
    }

    /// The entries, sorted by scope, code, consequence.
    #[must_use]
    pub fn entries(&self) -> &[LossEntry] {
        &self.entries
    }

    /// Whether nothing was lost.
    #[must_use]
    pub fn is_lossless(&self) -> bool {
        self.entries.is_empty()
    }

    /// Counts `count` more losses; zero adds no entry (TRJ-14).
    pub fn add(
        &mut self,
        code: impl Into<Cow<'static, str>>,
        scope: impl Into<Cow<'static, str>>,
        consequence: impl Into<Cow<'static, str>>,
        count: u64,
    ) {
        self.add_entry(LossEntry {
            code: code.into(),
            scope: scope.into(),
            consequence: consequence.into(),
            count,
        });
    }

    /// Merges another loss into this one: policies once each in first-seen order, counts added (TRJ-14).
    pub fn merge(&mut self, other: &Loss) {
        self.add_policy(&other.policy_id);
        for entry in &other.entries {
            self.add_entry(entry.clone());
        }
    }

    /// Adds the policies of `policy_id` that are not there yet; ids are split at `+`.
    pub fn add_policy(&mut self, policy_id: &str) {
        for policy in policy_id.split('+').filter(|policy| !policy.is_empty()) {
            if self.policy_id.split('+').any(|known| known == policy) {
                continue;
            }
            let joined = self.policy_id.to_mut();
            if !joined.is_empty() {
                joined.push('+');
            }
            joined.push_str(policy);
        }
    }

    fn add_entry(&mut self, entry: LossEntry) {
        if entry.count == 0 {
            return;
        }
        let place = self.entries.binary_search_by(|known| {
            (&known.scope, &known.code, &known.consequence).cmp(&(
                &entry.scope,
                &entry.code,
                &entry.consequence,
            ))
        });
        match place {
            Ok(index) => {
                if let Some(known) = self.entries.get_mut(index) {
                    known.count = known.count.saturating_add(entry.count);
                }
            }
            Err(index) => self.entries.insert(index, entry),
        }
    }

    /// Takes stored entries as they are: their order and duplicates are part of the stored digest.
    pub(super) fn from_stored(policy_id: String, entries: Vec<LossEntry>) -> Self {
        Loss {
            policy_id: policy_id.into(),
            entries,
        }
    }

    /// The same loss in the form of TRJ-14, whatever the form it was stored in.
    #[must_use]
    pub fn normalized(&self) -> Loss {
        let mut loss = Loss {
            policy_id: Cow::Borrowed(""),
            entries: Vec::new(),
        };
        loss.merge(self);
        loss
    }

    pub(super) fn write(&self, slot: ValueWriter<'_>) {
        let mut object = slot.object();
        let mut entries = object.key("entries").array();
        for entry in &self.entries {
            let mut written = entries.item().object();
            written.key("code").str(&entry.code);
            written.key("consequence").str(&entry.consequence);
            written.key("count").u64(entry.count);
            written.key("scope").str(&entry.scope);
            written.end();
        }
        entries.end();
        object.key("is_lossless").bool(self.is_lossless());
        object.key("policy_id").str(&self.policy_id);
        object.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_adds_counts_and_keeps_policies_once() {
        // TRJ-14
        let mut loss = Loss::none();
        loss.add("b", "payload", "x", 2);
        loss.add("a", "payload", "x", 1);
        loss.add("z", "a_scope", "x", 1);
        let mut other = Loss::under("p+qitos.loss/none+q");
        other.add("b", "payload", "x", 3);
        other.add("b", "payload", "y", 0);
        loss.merge(&other);
        assert_eq!(loss.policy_id(), "qitos.loss/none+p+q");
        let seen: Vec<_> = loss
            .entries()
            .iter()
            .map(|e| (&*e.scope, &*e.code, e.count))
            .collect();
        assert_eq!(
            seen,
            [
                ("a_scope", "z", 1),
                ("payload", "a", 1),
                ("payload", "b", 5)
            ]
        );
        // Merging again doubles the counts and nothing else grows.
        let before = loss.clone();
        loss.merge(&before);
        assert_eq!(loss.entries().len(), 3);
        assert_eq!(loss.policy_id(), before.policy_id());
    }

    #[test]
    fn a_zero_count_makes_no_entry() {
        // TRJ-14
        let mut loss = Loss::none();
        loss.add("a", DEFAULT_SCOPE, DEFAULT_CONSEQUENCE, 0);
        assert!(loss.is_lossless());
    }
}
