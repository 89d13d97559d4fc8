//! K67: what is not offered is said so, by name, before any write (STO-13, STO-59).

use qitos_contracts::checkpoint::{Capability, Groups, StoreError};
use qitos_contracts::snapshot::Lifecycle;

use super::expect::{checked, head, head_is, open, persist};
use super::history::{History, Step};
use super::subject::StoreSubject;
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    vec![Check::new(
        "K67.unsupported_is_typed",
        "a capability is claimed exactly when its group is there; an absent one is named and writes nothing",
        &["STO-13", "STO-59", "STO-8"],
        unsupported_is_typed,
    )]
}

/// Whether the group of a capability is there, and the error without it.
fn group(groups: &Groups<'_>, capability: Capability) -> Option<Result<(), StoreError>> {
    Some(match capability {
        Capability::AtomicFork => groups.fork().map(|_| ()),
        Capability::Incremental => groups.chunk_access().map(|_| ()),
        Capability::Lease => groups.leases().map(|_| ()),
        Capability::Inbox => groups.inbox().map(|_| ()),
        // One group serves both; it must be there for either.
        Capability::Retention | Capability::Delete => groups.retention().map(|_| ()),
        _ => return None,
    })
}

async fn unsupported_is_typed(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K67").await?;
    let claimed = store.capabilities();
    ensure!(
        *claimed == stage.subject().capabilities(),
        "the opened instance does not claim what its subject says"
    );
    let groups = store.groups();
    for capability in Capability::ALL {
        let claims = claimed.claims(capability);
        match group(&groups, capability) {
            None => ensure!(claims, "{capability} is required of every store"),
            Some(Ok(())) => {
                let shared = matches!(capability, Capability::Retention | Capability::Delete)
                    && (claimed.claims(Capability::Retention)
                        || claimed.claims(Capability::Delete));
                ensure!(
                    claims || shared,
                    "the group of {capability} is there, the claim is not"
                );
            }
            Some(Err(error)) => {
                ensure!(!claims, "{capability} is claimed without its group");
                let shared = capability == Capability::Delete;
                let named = matches!(
                    &error,
                    StoreError::UnsupportedCapability { capability: named }
                        if shared || *named == capability.name()
                );
                ensure!(named, "the error does not name {capability}: {error:?}");
            }
        }
        if !claims {
            let refused = claimed.require(capability);
            ensure!(
                refused
                    == Err(StoreError::UnsupportedCapability {
                        capability: capability.name()
                    }),
                "requiring {capability} gave {refused:?}"
            );
        }
    }
    let mut history = History::new("K67");
    let receipt = persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
    if !claimed.claims(Capability::Inbox) {
        let request = history
            .clone()
            .commit(Step::to(Lifecycle::Running).salted("inbox").consuming(0))?;
        match store.commit(checked(request)?).await {
            Err(StoreError::UnsupportedCapability { capability }) => ensure!(
                capability == Capability::Inbox.name(),
                "consuming an inbox named {capability}"
            ),
            other => {
                return Err(Failure::new(format!(
                    "consuming the inbox of a store without one gave {other:?}"
                )));
            }
        }
    }
    head_is(&*store, &receipt).await?;
    let other = History::new("K67 other");
    ensure!(
        head(&*store, other.session()).await?.is_none(),
        "asking for capabilities wrote something"
    );
    Ok(())
}
