//! The rows of the stream tables S, C, R and A of the provider specification (section 5).

use super::rows::Row;

macro_rules! rows {
    ($($id:literal => $sentence:literal),+ $(,)?) => {
        &[$(Row { id: $id, rules: &[$id], sentence: $sentence }),+]
    };
}

/// What every event stream owes.
pub(super) const SSE: &[Row] = rows!(
    "PRV-S1" => ": OPENROUTER PROCESSING or : lines between events: tolerate",
    "PRV-S2" => "CR LF line ends, CR and LF in different chunks: tolerate",
    "PRV-S3" => "data:{...} without space; event split over two data: lines: tolerate",
    "PRV-S4" => "emoji or CJK character cut between chunks: tolerate, exact text",
    "PRV-S5" => "EF BB BF first, also split: tolerate; first event not lost",
    "PRV-S6" => "byte FF inside a string: malformed_event",
    "PRV-S7" => "200, application/json, full chat completion: non_sse_body",
    "PRV-S8" => "200, application/json, {\"error\":...}: class of the error",
    "PRV-S9" => "200 event stream, zero bytes, end: missing_terminal",
    "PRV-S10" => "data: not json: malformed_event",
    "PRV-S11" => "terminal event, then end of body with no blank line: success",
    "PRV-S12" => "last event cut inside its JSON, clean end: missing_terminal",
    "PRV-S13" => "missing Content-Type, body starts with data:/event:/:: tolerate",
    "PRV-S14" => "heartbeats forever, no data event: provider_timeout, kind progress",
);

/// Chat Completions.
pub(super) const CHAT: &[Row] = rows!(
    "PRV-C1" => "text..., finish stop, usage chunk (choices: []), [DONE]: success, usage once",
    "PRV-C2" => "as C1 without [DONE], clean end: success",
    "PRV-C3" => "text..., [DONE], no finish: missing_terminal, partial text count",
    "PRV-C4" => "text, end of body: missing_terminal, count = delivered",
    "PRV-C5" => "finish length, no calls: success, finish length, truncated",
    "PRV-C6" => "half a call, finish length: truncated_tool_input, 1 partial call",
    "PRV-C7" => "half a call, finish tool_calls: incomplete_tool_input",
    "PRV-C8" => "complete calls, finish stop: forced tool_choice (required/named): success as tool_calls + warning; else finish_disallows_tools, unless profile stop_may_carry_tool_calls",
    "PRV-C9" => "finish tool_calls, no call: terminal_without_tool",
    "PRV-C10" => "finish stop, then text or finish length: content_after_terminal / conflicting_terminal",
    "PRV-C11" => "finish stop twice; second in the usage chunk: success",
    "PRV-C12" => "first chunk choices: [] with prompt_filter_results: tolerate",
    "PRV-C13" => "finish_reason: \"\" on every chunk, real one last: success",
    "PRV-C14" => "usage on last content chunk and again trailing, equal: success, counted once",
    "PRV-C15" => "usage on every chunk, never falling: success, last value",
    "PRV-C16" => "usage falls in any field: usage_conflict",
    "PRV-C17" => "calls without index, each with id and name: success, n calls",
    "PRV-C18" => "two complete calls, both index: 0, ids differ: success, 2 calls",
    "PRV-C19" => "indices 0 and 2: success, order 0, 2",
    "PRV-C20" => "name in every chunk; or in two pieces of a declared name: success, name once",
    "PRV-C21" => "arguments \"\" only, finish tool_calls: success, {}",
    "PRV-C22" => "arguments [1], null or two objects in one slot, same id: incomplete_tool_input",
    "PRV-C23" => "id missing to the end: tool_identity_missing",
    "PRV-C24" => "same id at two indices: tool_identity_conflict",
    "PRV-C25" => "delta.refusal: provider_refusal, partial count",
    "PRV-C26" => "finish content_filter, with or without text: provider_refusal",
    "PRV-C27" => "{\"error\":{\"code\":502,...}}, with choices: [] or finish error: provider_server_error, retryable",
    "PRV-C28" => "[DONE], then more data: success of what came before",
    "PRV-C29" => "role-only, empty-string and reasoning-only chunks, then text: success; reasoning apart",
    "PRV-C30" => "legacy delta.function_call, finish function_call: terminal_without_tool",
    "PRV-C31" => "finish insufficient_system_resource / abort: provider_overloaded, retryable / provider_server_error",
);

/// Responses.
pub(super) const RESPONSES: &[Row] = rows!(
    "PRV-R1" => "created, deltas, item.done, completed(status completed): success, one copy of each item",
    "PRV-R2" => "completed twice, equal: success",
    "PRV-R3" => "completed twice, different: conflicting_terminal",
    "PRV-R4" => "end before completed, all items done: missing_terminal, no call runs",
    "PRV-R5" => "[DONE] before / after completed: missing_terminal / tolerate",
    "PRV-R6" => "completed with output: [], items done before: success from the items",
    "PRV-R7" => "completed with output: [], no items done; text deltas or none: success, text = deltas",
    "PRV-R8" => "completed whose status is incomplete, failed, in_progress: conflicting_terminal",
    "PRV-R9" => "response.incomplete, max_output_tokens, text only: provider_response_incomplete, partial count, usage kept",
    "PRV-R10" => "same with a started function_call: provider_response_incomplete, 1 partial call",
    "PRV-R11" => "response.incomplete, content_filter: provider_refusal",
    "PRV-R12" => "response.failed / error: PRV-41 class",
    "PRV-R13" => "completed after failed, or failed after completed: first failure / conflicting_terminal",
    "PRV-R14" => "refusal delta, or only a refusal part in the snapshot: provider_refusal",
    "PRV-R15" => "function_call without call_id or name: tool_identity_missing",
    "PRV-R16" => "function_call status incomplete inside completed: incomplete_tool_input",
    "PRV-R17" => "arguments \"\": success, {}",
    "PRV-R18" => "no argument deltas, full arguments in item.done: success",
    "PRV-R19" => "deltas \"ab\", snapshot \"abc\": success \"abc\", last delta \"c\"",
    "PRV-R20" => "deltas \"abX\", snapshot \"abc\": snapshot_mismatch",
    "PRV-R21" => "sequence numbers 0,0,5,3: tolerate",
    "PRV-R22" => "text delta after completed: content_after_terminal",
);

/// Anthropic Messages.
pub(super) const ANTHROPIC: &[Row] = rows!(
    "PRV-A1" => "message_start, blocks, message_delta(end_turn), message_stop, pings anywhere: success",
    "PRV-A2" => "end after message_delta, no message_stop: missing_terminal",
    "PRV-A3" => "message_stop without message_delta, or stop_reason null: missing_terminal",
    "PRV-A4" => "a block never stopped, then message_stop: event_order",
    "PRV-A5" => "no message_start; delta for unopened, closed or duplicate block: event_order",
    "PRV-A6" => "block or delta after stop_reason: content_after_terminal",
    "PRV-A7" => "two message_delta, reasons differ: conflicting_terminal",
    "PRV-A8" => "tool_use, only partial_json: \"\", stop, tool_use: success, {}",
    "PRV-A9" => "tool_use with half JSON, stop, max_tokens: truncated_tool_input",
    "PRV-A10" => "complete tool_use, stop_reason max_tokens: truncated_tool_input",
    "PRV-A11" => "complete tool_use, stop_reason end_turn: finish_disallows_tools",
    "PRV-A12" => "stop_reason tool_use, no tool_use block: terminal_without_tool",
    "PRV-A13" => "max_tokens / model_context_window_exceeded, text only: success, length, truncated",
    "PRV-A14" => "pause_turn: success, finish paused, never final; resend blocks unchanged, at most 8 times",
    "PRV-A15" => "refusal: provider_refusal, partial count",
    "PRV-A16" => "error overloaded_error, first event or mid-stream: provider_overloaded, retryable, sent yes, status null",
    "PRV-A17" => "thinking_delta..., signature_delta..., stop: success; reasoning + continuation",
    "PRV-A18" => "thinking without signature, then tool_use: success; not replayable",
    "PRV-A19" => "redacted_thinking, no deltas: success; kept unchanged",
    "PRV-A20" => "message_start usage {in 25, out 1}, message_delta usage {out 15}: in 25, out 15 (not 16)",
    "PRV-A21" => "message_delta usage has input_tokens: 0 after 25: in 25",
    "PRV-A22" => "message_start in 0, message_delta in 900: in 900",
    "PRV-A23" => "[DONE] after / before message_stop: tolerate / missing_terminal",
    "PRV-A24" => "anything but ping after message_stop: content_after_terminal",
    "PRV-A25" => "server_tool_use or *_tool_result blocks, citations_delta: success; native items; not executed",
);
