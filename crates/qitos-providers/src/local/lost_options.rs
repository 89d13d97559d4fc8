//! Rule: an option that a server cannot be sent is a declared loss (PRV-104).

use qitos_contracts::model::{CodecError, CodecReport, WirePayload};
use serde_json::{Map, Value};

/// Takes the options that a server does not take out of `extra_body`; their names as fields of a report.
pub(super) fn take_lost(
    extra_body: &mut Map<String, Value>,
    carried: Option<&[&str]>,
) -> Vec<String> {
    let Some(carried) = carried else {
        return Vec::new();
    };
    let lost = extra_body
        .keys()
        .filter(|key| !carried.contains(&key.as_str()))
        .map(|key| format!("options.{key}"))
        .collect();
    extra_body.retain(|key, _| carried.contains(&key.as_str()));
    lost
}

/// Adds `lost` to what encoding lost, or refuses the request if that is not allowed (PRV-14).
pub(super) fn declare(
    encoded: Result<(WirePayload, CodecReport), CodecError>,
    lost: &[String],
    allow_loss: bool,
) -> Result<(WirePayload, CodecReport), CodecError> {
    match encoded {
        Ok((payload, mut report)) => {
            report.lossy_fields.extend_from_slice(lost);
            if lost.is_empty() || allow_loss {
                return Ok((payload, report.settled()));
            }
            Err(CodecError::LossRejected {
                lossy_fields: report.lossy_fields,
            })
        }
        Err(CodecError::LossRejected { mut lossy_fields }) => {
            lossy_fields.extend_from_slice(lost);
            Err(CodecError::LossRejected { lossy_fields })
        }
        Err(error) => Err(error),
    }
}
