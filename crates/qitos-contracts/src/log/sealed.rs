//! Items that were written and hashed once, and lists that share them.
//!
//! A request view of a long session lists every item of it, so the list is shared in frozen segments: taking a
//! view costs a pointer per segment, not per item (PRV-12, CTX-22).

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::item::{AssistantPart, Item, ItemBody, ToolCallPart};
use crate::canonical_json::CanonicalError;
use crate::digest::Digest;

/// Identifies what an encoded fragment was made for: codec, version and everything else that changes its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentKey(pub u64);

/// Writes the wire form of one item: nothing, or JSON values joined by commas.
pub type EncodeItem<'a, E> = dyn FnMut(&SealedItem, &mut Vec<u8>) -> Result<(), E> + 'a;

/// What kinds of content items hold; a request's requirements follow from their union (CTX-27).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Categories {
    /// Content other than text.
    pub multimodal: bool,
    /// An assistant item declares calls.
    pub tool_calls: bool,
    /// An assistant item declares several calls.
    pub parallel_tool_calls: bool,
    /// Reasoning parts.
    pub reasoning: bool,
    /// Tool results.
    pub tool_results: bool,
    /// Steering.
    pub steering: bool,
    /// Continuation attachments.
    pub continuation: bool,
    /// An assistant item has content after a call, an order that some dialects cannot write (PRV-14).
    pub interleaved: bool,
}

impl Categories {
    fn of(body: &ItemBody) -> Self {
        let mut found = Categories::default();
        match body {
            ItemBody::User(user) => {
                found.multimodal = user
                    .content
                    .iter()
                    .any(|block| &*block.block_type != "text")
            }
            ItemBody::Steering(steering) => {
                found.steering = true;
                found.multimodal = steering
                    .content
                    .iter()
                    .any(|block| &*block.block_type != "text");
            }
            ItemBody::Assistant(assistant) => {
                let calls = assistant.calls().count();
                found.tool_calls = calls > 0;
                found.parallel_tool_calls = calls > 1;
                found.continuation = !assistant.continuation_attachments.is_empty();
                let mut called = false;
                for part in &assistant.parts {
                    match part {
                        AssistantPart::Content(block) => {
                            found.multimodal |= &*block.block_type != "text";
                            found.interleaved |= called;
                        }
                        AssistantPart::ReasoningBlock(_) | AssistantPart::ReasoningReference(_) => {
                            found.reasoning = true;
                        }
                        AssistantPart::ToolCall(_) => called = true,
                    }
                }
            }
            ItemBody::ToolResult(_) => found.tool_results = true,
        }
        found
    }

    /// The union of two sets.
    #[must_use]
    pub fn union(self, other: Categories) -> Categories {
        Categories {
            multimodal: self.multimodal | other.multimodal,
            tool_calls: self.tool_calls | other.tool_calls,
            parallel_tool_calls: self.parallel_tool_calls | other.parallel_tool_calls,
            reasoning: self.reasoning | other.reasoning,
            tool_results: self.tool_results | other.tool_results,
            steering: self.steering | other.steering,
            continuation: self.continuation | other.continuation,
            interleaved: self.interleaved | other.interleaved,
        }
    }
}

/// An item with the facts that were computed when it was sealed.
pub struct SealedItem {
    item: Item,
    digest: Digest,
    units: u32,
    bytes: u32,
    categories: Categories,
    fragment: Mutex<Option<(FragmentKey, Arc<[u8]>)>>,
}

/// A shared sealed item.
pub type ItemRef = Arc<SealedItem>;

impl SealedItem {
    /// Writes and hashes `item` once; the canonical bytes go to `canonical` for whoever stores them.
    ///
    /// # Errors
    /// The item holds a number or text that canonical JSON refuses.
    pub fn seal(item: Item, canonical: &mut Vec<u8>) -> Result<ItemRef, CanonicalError> {
        let start = canonical.len();
        item.write_canonical(canonical)?;
        let bytes = canonical.get(start..).unwrap_or_default();
        Ok(Arc::new(SealedItem {
            digest: Digest::of(bytes),
            units: count_scalars(bytes),
            bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            categories: Categories::of(&item.body),
            item,
            fragment: Mutex::new(None),
        }))
    }

    /// The item.
    #[must_use]
    pub fn item(&self) -> &Item {
        &self.item
    }

    /// SHA-256 of the canonical bytes.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Unicode scalar values of the canonical bytes (CTX-16).
    #[must_use]
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Length of the canonical bytes.
    #[must_use]
    pub fn byte_length(&self) -> u32 {
        self.bytes
    }

    /// What it holds.
    #[must_use]
    pub fn categories(&self) -> Categories {
        self.categories
    }

    fn fragment<E>(
        &self,
        key: FragmentKey,
        encode: &mut EncodeItem<'_, E>,
    ) -> Result<Arc<[u8]>, E> {
        let mut cached = self.fragment.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made_for, bytes)) = &*cached
            && *made_for == key
        {
            return Ok(Arc::clone(bytes));
        }
        let mut bytes = Vec::with_capacity(self.bytes as usize);
        encode(self, &mut bytes)?;
        let bytes: Arc<[u8]> = bytes.into();
        *cached = Some((key, Arc::clone(&bytes)));
        Ok(bytes)
    }

    /// Whether a fragment for `key` is kept, and which.
    fn kept_fragment(&self, key: FragmentKey) -> Option<Arc<[u8]>> {
        let cached = self.fragment.lock().unwrap_or_else(PoisonError::into_inner);
        cached
            .as_ref()
            .filter(|(made_for, _)| *made_for == key)
            .map(|(_, bytes)| Arc::clone(bytes))
    }

    /// Keeps the item's whole wire form, made with provider state that the item itself does not hold (PRV-32).
    pub fn keep_fragment(&self, key: FragmentKey, bytes: Arc<[u8]>) {
        *self.fragment.lock().unwrap_or_else(PoisonError::into_inner) = Some((key, bytes));
    }

    fn drop_fragment(&self) {
        *self.fragment.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Adds one item's fragment, or its form without state and its place among the waiting.
fn add_fragment<E>(
    item: &ItemRef,
    key: FragmentKey,
    encode: &mut EncodeItem<'_, E>,
    waits: &dyn Fn(&SealedItem) -> bool,
    (fragments, waiting): &mut Fragments,
) -> Result<(), E> {
    let fragment = if !waits(item) {
        item.fragment(key, encode)?
    } else if let Some(kept) = item.kept_fragment(key) {
        kept
    } else {
        let mut bytes = Vec::with_capacity(item.bytes as usize);
        encode(item, &mut bytes)?;
        waiting.push((fragments.len(), Arc::clone(item)));
        bytes.into()
    };
    fragments.push(fragment);
    Ok(())
}

impl fmt::Debug for SealedItem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SealedItem")
            .field("item_id", &self.item.item_id)
            .field("kind", &self.item.body.kind())
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

/// Counts Unicode scalar values of UTF-8 text: bytes that are no continuation bytes.
fn count_scalars(utf8: &[u8]) -> u32 {
    let count = utf8
        .iter()
        .filter(|byte| (**byte & 0b1100_0000) != 0b1000_0000)
        .count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Items in a frozen segment.
const SEGMENT_ITEMS: usize = 128;

/// A frozen run of items; its encoded bytes are joined and kept once for all later requests.
#[derive(Debug)]
pub struct Segment {
    items: Vec<ItemRef>,
    categories: Categories,
    units: u64,
    /// Sorted fingerprints of the call ids that the items declare.
    calls: Vec<u64>,
    joined: OnceLock<(FragmentKey, Arc<[u8]>)>,
}

impl Segment {
    fn freeze(items: Vec<ItemRef>) -> Self {
        let categories = items.iter().fold(Categories::default(), |all, item| {
            all.union(item.categories())
        });
        let units = items.iter().map(|item| u64::from(item.units())).sum();
        let mut calls: Vec<u64> = items
            .iter()
            .flat_map(|item| declared_calls(item))
            .map(|call| call_fingerprint(&call.provider_scope, call.call_id.as_str()))
            .collect();
        calls.sort_unstable();
        Segment {
            items,
            categories,
            units,
            calls,
            joined: OnceLock::new(),
        }
    }
}

fn declared_calls(item: &SealedItem) -> impl Iterator<Item = &ToolCallPart> {
    let assistant = match &item.item().body {
        ItemBody::Assistant(assistant) => Some(assistant),
        _ => None,
    };
    assistant
        .into_iter()
        .flat_map(|assistant| assistant.calls())
}

/// A clash only makes a new id look used, which renames it (PRV-24).
fn call_fingerprint(scope: &str, call_id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (scope, call_id).hash(&mut hasher);
    hasher.finish()
}

/// An immutable-by-sharing list of items: cheap to clone, cheap to append to.
#[derive(Clone, Debug, Default)]
pub struct ItemList {
    frozen: Arc<Vec<Arc<Segment>>>,
    tail: Vec<ItemRef>,
    len: usize,
}

impl ItemList {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        ItemList::default()
    }

    /// Appends an item; amortised constant.
    pub fn push(&mut self, item: ItemRef) {
        self.tail.push(item);
        self.len += 1;
        if self.tail.len() == SEGMENT_ITEMS {
            let segment = Arc::new(Segment::freeze(std::mem::take(&mut self.tail)));
            Arc::make_mut(&mut self.frozen).push(segment);
        }
    }

    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The item at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&ItemRef> {
        match self.frozen.get(index / SEGMENT_ITEMS) {
            Some(segment) => segment.items.get(index % SEGMENT_ITEMS),
            None => self
                .tail
                .get(index.checked_sub(self.frozen.len() * SEGMENT_ITEMS)?),
        }
    }

    /// The newest item.
    #[must_use]
    pub fn last(&self) -> Option<&ItemRef> {
        self.get(self.len.checked_sub(1)?)
    }

    /// The items in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &ItemRef> {
        self.frozen
            .iter()
            .flat_map(|segment| segment.items.iter())
            .chain(self.tail.iter())
    }

    /// The items from `start` on; costs what it returns.
    #[must_use]
    pub fn suffix(&self, start: usize) -> ItemList {
        if start == 0 {
            return self.clone();
        }
        let mut list = ItemList::new();
        for index in start..self.len {
            if let Some(item) = self.get(index) {
                list.push(Arc::clone(item));
            }
        }
        list
    }

    /// What the items hold together; costs a step per segment.
    #[must_use]
    pub fn categories(&self) -> Categories {
        let frozen = self
            .frozen
            .iter()
            .fold(Categories::default(), |all, segment| {
                all.union(segment.categories)
            });
        self.tail
            .iter()
            .fold(frozen, |all, item| all.union(item.categories()))
    }

    /// Units of all items (CTX-16); costs a step per segment.
    #[must_use]
    pub fn units(&self) -> u64 {
        let frozen: u64 = self.frozen.iter().map(|segment| segment.units).sum();
        frozen
            + self
                .tail
                .iter()
                .map(|item| u64::from(item.units()))
                .sum::<u64>()
    }

    /// Whether an item of this list declares the call (PRV-24); costs a look-up per segment.
    #[must_use]
    pub fn declares_call(&self, provider_scope: &str, call_id: &str) -> bool {
        let wanted = call_fingerprint(provider_scope, call_id);
        self.frozen
            .iter()
            .any(|segment| segment.calls.binary_search(&wanted).is_ok())
            || self
                .tail
                .iter()
                .flat_map(|item| declared_calls(item))
                .any(|call| {
                    &*call.provider_scope == provider_scope && call.call_id.as_str() == call_id
                })
    }

    /// The list's encoded fragments, made once per item and codec and shared by later requests (PRV-12).
    ///
    /// `encode` writes the wire form of one item: nothing, or JSON values joined by commas. A frozen segment
    /// comes back as one joined fragment, so that a request over a long history costs a copy of bytes and
    /// nothing per item.
    ///
    /// # Errors
    /// The first error of `encode`; nothing of that item is kept.
    pub fn fragments<E>(
        &self,
        key: FragmentKey,
        encode: &mut EncodeItem<'_, E>,
    ) -> Result<Vec<Arc<[u8]>>, E> {
        let (fragments, _) = self.fragments_with_state(key, encode, &|_| false)?;
        Ok(fragments)
    }

    /// [`ItemList::fragments`] for a codec whose wire form of some items needs provider state kept elsewhere.
    ///
    /// `waits` tells which items those are. Such an item is `encode`d without its state unless a fragment made
    /// with it was kept ([`SealedItem::keep_fragment`]); its place among the fragments and the item are returned,
    /// and a segment that holds one is not joined yet.
    ///
    /// # Errors
    /// The first error of `encode`; nothing of that item is kept.
    pub fn fragments_with_state<E>(
        &self,
        key: FragmentKey,
        encode: &mut EncodeItem<'_, E>,
        waits: &dyn Fn(&SealedItem) -> bool,
    ) -> Result<Fragments, E> {
        let mut found: Fragments = (
            Vec::with_capacity(self.frozen.len() + self.tail.len()),
            Vec::new(),
        );
        for segment in self.frozen.iter() {
            if let Some((made_for, joined)) = segment.joined.get()
                && *made_for == key
            {
                found.0.push(Arc::clone(joined));
                continue;
            }
            let (first, waiting) = (found.0.len(), found.1.len());
            for item in &segment.items {
                add_fragment(item, key, encode, waits, &mut found)?;
            }
            if found.1.len() > waiting {
                continue;
            }
            let joined = join(found.0.drain(first..));
            if segment.joined.set((key, Arc::clone(&joined))).is_ok() {
                segment.items.iter().for_each(|item| item.drop_fragment());
            }
            found.0.push(joined);
        }
        for item in &self.tail {
            add_fragment(item, key, encode, waits, &mut found)?;
        }
        Ok(found)
    }
}

/// Fragments in order, and the items among them whose wire form lacks its state, with their places.
pub type Fragments = (Vec<Arc<[u8]>>, Vec<(usize, ItemRef)>);

fn join(fragments: impl Iterator<Item = Arc<[u8]>>) -> Arc<[u8]> {
    let mut joined = Vec::new();
    for bytes in fragments {
        if !joined.is_empty() && !bytes.is_empty() {
            joined.push(b',');
        }
        joined.extend_from_slice(&bytes);
    }
    joined.into()
}

impl FromIterator<ItemRef> for ItemList {
    fn from_iter<I: IntoIterator<Item = ItemRef>>(items: I) -> Self {
        let mut list = ItemList::new();
        for item in items {
            list.push(item);
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::super::item::UserItem;
    use super::*;

    fn item(index: usize) -> ItemRef {
        let body = ItemBody::User(UserItem {
            content: vec![super::super::ContentBlock::text(format!("é{index}"))],
            ..UserItem::default()
        });
        let item = Item {
            item_id: format!("item-{index}").parse().unwrap(),
            exchange_id: "exchange-0".parse().unwrap(),
            body,
        };
        SealedItem::seal(item, &mut Vec::new()).unwrap()
    }

    #[test]
    fn a_list_reads_the_same_across_segment_bounds() {
        for count in [
            0,
            1,
            SEGMENT_ITEMS - 1,
            SEGMENT_ITEMS,
            SEGMENT_ITEMS + 1,
            3 * SEGMENT_ITEMS + 7,
        ] {
            let list: ItemList = (0..count).map(item).collect();
            assert_eq!(list.len(), count);
            let ids: Vec<String> = list
                .iter()
                .map(|item| item.item().item_id.to_string())
                .collect();
            for (index, id) in ids.iter().enumerate() {
                assert_eq!(id, &format!("item-{index}"));
                assert_eq!(list.get(index).unwrap().item().item_id.as_str(), id);
            }
            assert!(list.get(count).is_none());
            assert_eq!(list.suffix(count / 2).len(), count - count / 2);
        }
    }

    #[test]
    fn an_item_that_waits_for_its_state_is_not_joined_before_it_has_it() {
        // PRV-12, PRV-32: encoded without state every time, with it once
        let mut list = ItemList::new();
        for index in 0..=SEGMENT_ITEMS {
            list.push(item(index));
        }
        let key = FragmentKey(7);
        let waits = |item: &SealedItem| item.item().item_id.as_str() == "item-1";
        let mut encoded = Vec::new();
        let mut fragments = |list: &ItemList| {
            list.fragments_with_state::<()>(
                key,
                &mut |item, bytes| {
                    encoded.push(item.item().item_id.to_string());
                    bytes.extend_from_slice(b"0");
                    Ok(())
                },
                &waits,
            )
            .unwrap()
        };
        for _ in 0..2 {
            let (all, waiting) = fragments(&list);
            assert_eq!(all.len(), SEGMENT_ITEMS + 1);
            assert_eq!(waiting.len(), 1);
            assert_eq!(waiting[0].0, 1);
        }
        let (_, waiting) = fragments(&list);
        waiting[0].1.keep_fragment(key, b"1".as_slice().into());
        let (all, waiting) = fragments(&list);
        assert!(waiting.is_empty());
        assert_eq!(all.len(), 2, "the segment is one fragment now");
        assert!(all[0].starts_with(b"0,1,0"));
        let (again, _) = fragments(&list);
        assert!(Arc::ptr_eq(&all[0], &again[0]));
        let times = |id: &str| encoded.iter().filter(|have| *have == id).count();
        assert_eq!((times("item-0"), times("item-1")), (1, 3));
    }

    #[test]
    fn fragments_are_encoded_once_and_joined_alike() {
        // PRV-12
        let list: ItemList = (0..SEGMENT_ITEMS + 3).map(item).collect();
        let mut encoded = 0;
        let mut run = |key| {
            let fragments = list
                .fragments::<()>(FragmentKey(key), &mut |item, bytes| {
                    encoded += 1;
                    bytes.extend_from_slice(item.item().item_id.as_str().as_bytes());
                    Ok(())
                })
                .unwrap();
            fragments
                .iter()
                .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
                .collect::<Vec<_>>()
                .join(",")
        };
        let first = run(1);
        assert_eq!(first, run(1));
        assert_eq!(first.split(',').count(), SEGMENT_ITEMS + 3);
        assert_eq!(encoded, SEGMENT_ITEMS + 3);
    }

    #[test]
    fn a_used_call_id_is_found_in_frozen_segments_and_in_the_tail() {
        // PRV-24
        let call = |index: usize| {
            let part = ToolCallPart {
                provider_scope: "p:m".into(),
                call_id: format!("call_{index}").parse().unwrap(),
                batch_id: format!("batch_{index}").parse().unwrap(),
                name: "step".into(),
                raw_arguments: "{}".into(),
                parsed_arguments: None,
                parse_status: super::super::ParseStatus::NotAttempted,
                parse_error: None,
                metadata: serde_json::Map::new(),
            };
            let item = Item {
                item_id: format!("item-{index}").parse().unwrap(),
                exchange_id: "exchange-0".parse().unwrap(),
                body: ItemBody::Assistant(super::super::AssistantItem {
                    parts: vec![AssistantPart::ToolCall(part)],
                    ..super::super::AssistantItem::default()
                }),
            };
            SealedItem::seal(item, &mut Vec::new()).unwrap()
        };
        let list: ItemList = (0..SEGMENT_ITEMS + 1).map(call).collect();
        assert!(list.declares_call("p:m", "call_0"));
        assert!(list.declares_call("p:m", &format!("call_{SEGMENT_ITEMS}")));
        assert!(!list.declares_call("p:m", &format!("call_{}", SEGMENT_ITEMS + 1)));
        assert!(!list.declares_call("other", "call_0"));
    }

    #[test]
    fn units_count_scalars_not_bytes() {
        // CTX-16: é, 漢 and 😀 are one unit each.
        assert_eq!(count_scalars("é漢😀a".as_bytes()), 4);
    }
}
