//! Equal calls with equal results are blocked; polling with changing results is not (ENG-22).

use std::sync::Arc;

use qitos_contracts::canonical_json::ObjectWriter;
use qitos_contracts::digest::Digest;
use qitos_contracts::tool::result::ToolResult;

use super::super::Machine;
use super::super::state::RecentTerminal;

/// Whether a call is blocked: the newest terminals are this tool, these arguments and one result.
pub(super) fn blocks(machine: &Machine, tool: &str, args: Digest) -> bool {
    let wanted = machine.fixed.policy.loop_max_repeats as usize;
    let recent = &machine.durable.recent;
    if wanted == 0 || recent.len() < wanted {
        return false;
    }
    let mut newest = recent.iter().rev().take(wanted);
    let Some(last) = newest.next() else {
        return false;
    };
    last.tool == tool && last.args == args && newest.all(|terminal| terminal == last)
}

/// Remembers a terminal; those that never started neither count nor reset.
pub(super) fn remember(machine: &mut Machine, tool: &Arc<str>, args: Digest, result: &ToolResult) {
    let wanted = machine.fixed.policy.loop_max_repeats as usize;
    if wanted == 0 || result.attempts() == 0 {
        return;
    }
    let mut bytes = Vec::with_capacity(128);
    let mut object = ObjectWriter::new(&mut bytes);
    object.key("error_code").optional_str(result.error_code());
    // An output that cannot be written was refused when the result was made.
    let _ = object.key("output").value(result.output());
    object.key("status").str(result.status().as_str());
    object.end();
    let terminal = RecentTerminal {
        tool: tool.to_string(),
        args,
        result: Digest::of(&bytes),
    };
    let recent = &mut machine.durable.recent;
    recent.push_back(terminal);
    while recent.len() > wanted {
        recent.pop_front();
    }
}
