//! Effect references and logical keys: text with `{argument}` and `{slot_id}` (TOL-6, TOL-8).

use syn::LitStr;

/// One piece of a template.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Argument(String),
    Slot,
}

/// Cuts a template into pieces.
pub(crate) fn parse(literal: &LitStr) -> syn::Result<Vec<Part>> {
    let text = literal.value();
    let refused = |message: &str| Err(syn::Error::new(literal.span(), message));
    let mut parts = Vec::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            return refused("`{` without `}`");
        };
        if before.contains('}') {
            return refused("`}` without `{`");
        }
        if !before.is_empty() {
            parts.push(Part::Text(before.to_owned()));
        }
        if name.is_empty() || name.contains('{') {
            return refused("a placeholder names an argument: `{name}`");
        }
        parts.push(if name == "slot_id" {
            Part::Slot
        } else {
            Part::Argument(name.to_owned())
        });
        rest = after;
    }
    if rest.contains('}') {
        return refused("`}` without `{`");
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    if parts.is_empty() {
        return refused("must not be empty");
    }
    Ok(parts)
}
