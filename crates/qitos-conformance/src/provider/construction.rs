//! Building a model sends nothing (PRV-38).

use qitos_contracts::model::RequestSent;

use super::expect::stand_on;
use super::peer::ScriptedPeer;
use super::subject::{ProviderSubject, Setup};
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ProviderSubject>> {
    vec![Check::new(
        "construction_sends_nothing",
        "building model and client opens no connection, and building that fails says that nothing was sent",
        &["PRV-38"],
        construction_sends_nothing,
    )]
}

async fn construction_sends_nothing(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let setup = Setup::new(ScriptedPeer::new(Vec::new()));
    let stand = stand_on(&stage, &setup)?;
    ensure!(
        setup.peer.opened() == 0 && setup.peer.request_count() == 0,
        "building opened a connection"
    );
    drop(stand);
    match stage.subject().build_flawed(&setup) {
        None => {}
        Some(Ok(_)) => {
            return Err(Failure::new("flawed settings were built all the same"));
        }
        Some(Err(failure)) => ensure!(
            failure.request_sent == RequestSent::No
                && failure.redacted_details.transport_attempts == 0,
            "{}: a failed construction says that something was sent",
            failure.error_code
        ),
    }
    ensure!(
        setup.peer.opened() == 0,
        "a failed construction opened a connection"
    );
    Ok(())
}
