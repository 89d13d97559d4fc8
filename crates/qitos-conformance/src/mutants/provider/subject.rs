//! A subject whose models have a flaw.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use qitos_contracts::model::{Model, ProviderCapabilities, ProviderFailure};

use super::codec::MutantCodec;
use super::flaw::Flaw;
use super::model::MutantModel;
use crate::provider::{Answer, Dialect, Form, ProviderSubject, Setup, WireForm};

/// A subject whose models all have one flaw.
pub struct MutantProvider {
    inner: Arc<dyn ProviderSubject>,
    flaw: Flaw,
    name: String,
}

impl std::fmt::Debug for MutantProvider {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("MutantProvider")
            .field("flaw", &self.flaw)
            .finish_non_exhaustive()
    }
}

impl MutantProvider {
    /// A right subject, made wrong.
    #[must_use]
    pub fn new(inner: Arc<dyn ProviderSubject>, flaw: Flaw) -> Self {
        MutantProvider {
            name: format!("{} that {flaw:?}", inner.name()),
            inner,
            flaw,
        }
    }
}

impl ProviderSubject for MutantProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> ProviderCapabilities {
        let mut capabilities = self.inner.capabilities();
        if self.flaw == Flaw::ClaimsAgainstItself {
            capabilities.supports_continuation = !capabilities.supports_continuation;
        }
        capabilities
    }

    fn build(&self, setup: &Setup) -> Result<Arc<dyn Model>, Box<ProviderFailure>> {
        let inner = self.inner.build(setup)?;
        if self.flaw == Flaw::ConnectsEarly {
            drop(setup.peer.open_connection());
        }
        Ok(Arc::new(MutantModel {
            codec: MutantCodec {
                inner: Arc::clone(&inner),
                flaw: self.flaw,
                payloads: AtomicUsize::new(0),
            },
            inner,
            capabilities: self.capabilities(),
            flaw: self.flaw,
            credential: setup.credential.clone(),
            peer: setup.peer.clone(),
            kept: Mutex::default(),
            cancelled: AtomicUsize::new(0),
        }))
    }

    fn build_flawed(&self, setup: &Setup) -> Option<Result<Arc<dyn Model>, Box<ProviderFailure>>> {
        self.inner.build_flawed(setup)
    }

    fn wire(&self, answer: &Answer, form: Form) -> Option<WireForm> {
        self.inner.wire(answer, form)
    }

    fn dialect(&self) -> Option<Dialect> {
        self.inner.dialect()
    }
}
