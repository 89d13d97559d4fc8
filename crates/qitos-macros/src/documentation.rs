//! Rule: what a doc comment says about a tool and its arguments (TOL-3, MAC-1).

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::{Attribute, Expr, ExprLit, Ident, Lit, Meta};

/// The useful parts of a function's doc comment.
#[derive(Debug, Default)]
pub(crate) struct Documentation {
    /// Everything up to the first heading.
    pub(crate) description: String,
    /// The list under `# Arguments`: name, text, place.
    pub(crate) arguments: Vec<(String, String, Span)>,
}

/// The lines of doc comments, without the space that follows `///`.
pub(crate) fn lines(attributes: &[Attribute]) -> Vec<(String, Span)> {
    let mut lines = Vec::new();
    for attribute in attributes {
        if let Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) = &pair.value
        {
            for line in text.value().split('\n') {
                lines.push((
                    line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned(),
                    text.span(),
                ));
            }
        }
    }
    lines
}

/// The text of a doc comment as one paragraph.
pub(crate) fn paragraph(attributes: &[Attribute]) -> Option<String> {
    let words: Vec<String> = lines(attributes)
        .into_iter()
        .map(|(line, _)| line.trim().to_owned())
        .collect();
    Some(words.join(" ").trim().to_owned()).filter(|text| !text.is_empty())
}

/// Reads a function's doc comment.
pub(crate) fn read(attributes: &[Attribute]) -> Documentation {
    #[derive(PartialEq)]
    enum Section {
        Description,
        Arguments,
        Other,
    }
    let mut documentation = Documentation::default();
    let mut section = Section::Description;
    for (line, span) in lines(attributes) {
        if let Some(heading) = line.strip_prefix("# ") {
            let is_arguments = heading.trim().eq_ignore_ascii_case("arguments");
            section = if is_arguments {
                Section::Arguments
            } else {
                Section::Other
            };
            continue;
        }
        match section {
            Section::Description => {
                documentation.description.push_str(&line);
                documentation.description.push('\n');
            }
            Section::Arguments => match list_entry(&line) {
                Some((name, text)) => documentation.arguments.push((name, text, span)),
                None => {
                    if let Some((_, text, _)) = documentation.arguments.last_mut()
                        && !line.trim().is_empty()
                    {
                        text.push(' ');
                        text.push_str(line.trim());
                    }
                }
            },
            Section::Other => {}
        }
    }
    documentation.description = documentation.description.trim().to_owned();
    documentation
}

/// `* `name` - text` or `- name: text`.
fn list_entry(line: &str) -> Option<(String, String)> {
    let entry = line
        .strip_prefix("* ")
        .or_else(|| line.strip_prefix("- "))?
        .trim_start();
    let (name, text) = match entry.strip_prefix('`') {
        Some(quoted) => quoted.split_once('`')?,
        None => entry.split_once([' ', ':']).unwrap_or((entry, "")),
    };
    let text = text.trim_start_matches([' ', ':', '-', '\u{2013}', '\u{2014}']);
    Some((name.trim().to_owned(), text.trim().to_owned()))
}

/// Refuses a documented parameter that does not exist, at its line (MAC-1).
pub(crate) fn check_names(
    documentation: &Documentation,
    parameters: &[Ident],
    errors: &mut crate::signature::Errors,
) {
    for (name, _, span) in &documentation.arguments {
        if !parameters.iter().any(|parameter| parameter.unraw() == name) {
            errors.push(*span, format!("`{name}` is documented but is no parameter"));
        }
    }
}
