//! Rule: which pieces belong to which tool call (PRV-64, PRV-65).

use qitos_contracts::model::Violation;

use super::chunk::ToolPiece;
use crate::call::{MAX_ARGUMENT_BYTES, MAX_TOOL_SLOTS};
use crate::verdict::is_complete_object;

/// One tool call being put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolSlot {
    declared_index: Option<u64>,
    order: u64,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// All tool calls of one response.
#[derive(Debug, Default)]
pub(crate) struct ToolSlots {
    slots: Vec<ToolSlot>,
}

impl ToolSlots {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The calls ordered by index; equal indexes in order of arrival.
    pub(crate) fn into_ordered(mut self) -> Vec<ToolSlot> {
        self.slots.sort_by_key(|slot| slot.order);
        self.slots
    }

    /// Adds one piece; returns how many bytes it added.
    pub(crate) fn accept(
        &mut self,
        piece: &ToolPiece<'_>,
        declared_tools: &[String],
    ) -> Result<usize, Violation> {
        let function = piece.function.0.as_ref();
        let name = function.map_or("", |function| function.name.as_str());
        let arguments = function.map_or("", |function| function.arguments.as_str());
        let id = piece.id.as_str();
        let position = match piece.index {
            Some(index) => self.slot_of_index(index, id, name)?,
            None => self.slot_without_index(id, name)?,
        };
        let id_is_taken = |slots: &[ToolSlot]| {
            slots
                .iter()
                .enumerate()
                .any(|(other, slot)| other != position && slot.id == id)
        };
        if !id.is_empty() && id_is_taken(&self.slots) {
            return Err(Violation::ToolIdentityConflict);
        }
        let Some(slot) = self.slots.get_mut(position) else {
            return Err(Violation::ToolIdentityMissing);
        };
        let mut added = 0;
        if slot.id.is_empty() {
            slot.id.push_str(id);
            added += id.len();
        }
        added += slot.add_name(name, declared_tools)?;
        slot.arguments.push_str(arguments);
        if slot.arguments.len() > MAX_ARGUMENT_BYTES {
            return Err(Violation::LimitExceeded);
        }
        Ok(added + arguments.len())
    }

    fn slot_of_index(&mut self, index: u64, id: &str, name: &str) -> Result<usize, Violation> {
        let latest = self
            .slots
            .iter()
            .rposition(|slot| slot.declared_index == Some(index));
        let Some(position) = latest else {
            return self.open(Some(index), index);
        };
        let another_call = self
            .slots
            .get(position)
            .is_some_and(|slot| !id.is_empty() && !slot.id.is_empty() && slot.id != id);
        if !another_call {
            return Ok(position);
        }
        // Some servers number every parallel call 0: a new name after finished arguments is a new call.
        let finished = self
            .slots
            .get(position)
            .is_some_and(|slot| is_complete_object(&slot.arguments));
        if finished && !name.is_empty() {
            self.open(Some(index), index)
        } else {
            Err(Violation::ToolIdentityConflict)
        }
    }

    fn slot_without_index(&mut self, id: &str, name: &str) -> Result<usize, Violation> {
        if id.is_empty() {
            return match self.slots.len() {
                1 => Ok(0),
                _ => Err(Violation::ToolIdentityMissing),
            };
        }
        if let Some(position) = self.slots.iter().position(|slot| slot.id == id) {
            return Ok(position);
        }
        if name.is_empty() {
            return Err(Violation::ToolIdentityMissing);
        }
        let order = self
            .slots
            .iter()
            .map(|slot| slot.order.saturating_add(1))
            .max()
            .unwrap_or(0);
        self.open(None, order)
    }

    fn open(&mut self, declared_index: Option<u64>, order: u64) -> Result<usize, Violation> {
        if self.slots.len() >= MAX_TOOL_SLOTS {
            return Err(Violation::LimitExceeded);
        }
        self.slots.push(ToolSlot {
            declared_index,
            order,
            ..ToolSlot::default()
        });
        Ok(self.slots.len() - 1)
    }
}

impl ToolSlot {
    /// A repeated name is ignored; another piece must lead to a declared tool (PRV-65).
    fn add_name(&mut self, piece: &str, declared_tools: &[String]) -> Result<usize, Violation> {
        if piece.is_empty() || self.name == piece {
            return Ok(0);
        }
        if !self.name.is_empty() {
            let leads_to_a_tool = declared_tools.iter().any(|tool| {
                tool.strip_prefix(self.name.as_str())
                    .is_some_and(|rest| rest.starts_with(piece))
            });
            if !leads_to_a_tool {
                return Err(Violation::ToolIdentityConflict);
            }
        }
        self.name.push_str(piece);
        Ok(piece.len())
    }
}
