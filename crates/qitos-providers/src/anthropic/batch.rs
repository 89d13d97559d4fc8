//! Rule: all results of a batch stand in one message, before anything else the user says.
//!
//! The server wants the results of an answer's calls together and first; steering and other words of
//! the user follow as messages of their own, which the server reads as parts of the same turn. The
//! log closes a batch before anything follows it, and nothing is asked while one is open, so the
//! first result may be written with all the others: none of them is still to come.

use qitos_contracts::log::{ItemBody, ItemList, SealedItem, ToolResultItem};
use qitos_contracts::model::CodecError;

/// Finds the neighbours of results among the items of one view.
#[derive(Debug)]
pub(crate) struct Batches<'a> {
    items: &'a ItemList,
    /// Where the last result was found; items come in order.
    place: Option<usize>,
}

impl<'a> Batches<'a> {
    pub(crate) fn of(items: &'a ItemList) -> Self {
        Batches { items, place: None }
    }

    /// The results that stand in one message with `own`, which `item` holds, from `own` on; empty if an earlier
    /// result was written with them.
    pub(crate) fn results(
        &mut self,
        item: &SealedItem,
        own: &ToolResultItem,
    ) -> Result<Vec<&'a ToolResultItem>, CodecError> {
        let items = self.items;
        let place = self.find(item).ok_or(CodecError::EncodeFailed {
            reason: "a result is none of the view's items",
        })?;
        let at = |place: usize| match &items.get(place)?.item().body {
            ItemBody::ToolResult(result) if result.batch_id == own.batch_id => Some(result),
            _ => None,
        };
        if place.checked_sub(1).and_then(at).is_some() {
            return Ok(Vec::new());
        }
        Ok((place..).map_while(at).collect())
    }

    /// What is written for the first time stands near the end, so the first search goes backwards and costs what
    /// is new; later ones go on from there.
    fn find(&mut self, item: &SealedItem) -> Option<usize> {
        let is_here = |place: &usize| {
            self.items
                .get(*place)
                .is_some_and(|found| std::ptr::eq(&**found, item))
        };
        let found = match self.place {
            Some(place) => (place..self.items.len()).find(is_here),
            None => (0..self.items.len()).rev().find(is_here),
        };
        self.place = found.or(self.place);
        found
    }
}
