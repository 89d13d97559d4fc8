//! Rule: the address under which an image of a content block is sent.

use qitos_contracts::log::ContentBlock;
use qitos_contracts::model::CodecError;

/// The block's own address, or its data written into one.
pub(crate) fn image_url(block: &ContentBlock) -> Result<String, CodecError> {
    match (&block.url, &block.data) {
        (Some(url), _) => Ok(url.to_string()),
        (None, Some(data)) => {
            let mime_type = block.mime_type.as_deref().unwrap_or("image/png");
            Ok(format!("data:{mime_type};base64,{data}"))
        }
        (None, None) => Err(CodecError::EncodeFailed {
            reason: "an image block has neither url nor data",
        }),
    }
}
