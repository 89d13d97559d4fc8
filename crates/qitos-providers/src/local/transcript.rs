//! Rule: how one log item reads as plain text, for servers that take nothing else.

use qitos_contracts::log::{AssistantItem, ContentBlock, ItemBody};
use qitos_contracts::model::CodecError;

use crate::call::TEXT_SCOPE;
use crate::result_text::result_text;

/// Role and text of an item.
///
/// # Errors
/// `codec_capability_mismatch` for a call that was made as an API object or its result: text would hide it.
pub(super) fn message_of(body: &ItemBody) -> Result<(&'static str, String), CodecError> {
    match body {
        ItemBody::User(user) => Ok(("user", text_of(&user.content))),
        ItemBody::Steering(steering) => Ok(("user", text_of(&steering.content))),
        ItemBody::Assistant(assistant) => {
            check_no_native_call(assistant)?;
            Ok(("assistant", assistant.text()))
        }
        ItemBody::ToolResult(result) if &*result.provider_scope == TEXT_SCOPE => {
            let text = result_text(&result.result);
            Ok(("user", format!("Observation: {text}")))
        }
        ItemBody::ToolResult(_) => Err(native_calls()),
    }
}

fn check_no_native_call(assistant: &AssistantItem) -> Result<(), CodecError> {
    let native = |scope: &str| scope != TEXT_SCOPE;
    if assistant.calls().any(|call| native(&call.provider_scope)) {
        return Err(native_calls());
    }
    Ok(())
}

fn native_calls() -> CodecError {
    CodecError::CapabilityMismatch {
        unsupported: vec!["tool_calls".to_owned()],
    }
}

/// Texts in their order; other blocks were declared as a loss before anything is written.
fn text_of(content: &[ContentBlock]) -> String {
    let texts: Vec<&str> = content
        .iter()
        .filter(|block| &*block.block_type == "text")
        .filter_map(|block| block.text.as_deref())
        .collect();
    texts.join("\n")
}
