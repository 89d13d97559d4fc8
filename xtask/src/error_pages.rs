//! `cargo xtask error-pages`: one page per error code, made from `docs/errors/index.txt`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::repository::{files, read};

/// What a page says.
#[derive(Debug)]
pub(crate) struct Entry {
    happened: String,
    remedy: String,
}

/// The index: `code | what happened | what to do` per line.
pub(crate) fn index(root: &Path) -> Result<BTreeMap<String, Entry>, String> {
    let mut entries = BTreeMap::new();
    for line in read(&root.join("docs/errors/index.txt"))?.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parts: Vec<&str> = line.split(" | ").collect();
        let [code, happened, remedy] = parts.as_slice() else {
            return Err(format!("index.txt: not three parts: {line}"));
        };
        let entry = Entry {
            happened: (*happened).to_owned(),
            remedy: (*remedy).to_owned(),
        };
        if !is_code(code) || entries.insert((*code).to_owned(), entry).is_some() {
            return Err(format!("index.txt: no code, or given twice: {code}"));
        }
    }
    Ok(entries)
}

fn is_code(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

/// The string literals of a line that look like codes.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"')
        .skip(1)
        .step_by(2)
        .filter(|text| is_code(text))
}

/// The type that an `impl` line is about.
fn subject(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = rest
        .rsplit_once(" for ")
        .map_or(rest, |(_, subject)| subject);
    rest.split(|character: char| !character.is_ascii_alphanumeric())
        .find(|word| word.starts_with(|first: char| first.is_ascii_uppercase()))
}

/// Whether a line begins a function that names codes, and if so the line that ends it.
fn naming_function(line: &str, subject: &str) -> Option<String> {
    let indentation: String = line
        .chars()
        .take_while(|character| *character == ' ')
        .collect();
    let (before, rest) = line.split_once("fn ")?;
    let (name, signature) = rest.split_once('(')?;
    let is_function = before
        .split_whitespace()
        .all(|word| matches!(word, "pub" | "pub(crate)" | "const"));
    let gives_text = signature.contains("str");
    let names_codes =
        matches!(name, "code" | "store_code") || (name == "as_str" && subject.ends_with("Code"));
    (is_function && gives_text && names_codes).then(|| format!("{indentation}}}"))
}

/// The codes of the sources: those that functions return as such, and those of the index that stand in a literal.
pub(crate) fn codes(
    root: &Path,
    known: &BTreeMap<String, Entry>,
) -> Result<BTreeSet<String>, String> {
    let mut codes = BTreeSet::new();
    for path in files(&root.join("crates"), &["rs"])? {
        let text_path = path.to_string_lossy().replace('\\', "/");
        let is_source = text_path.contains("/src/")
            && !text_path.contains("/tests")
            && !text_path.contains("tests.rs")
            && !text_path.contains("/qitos-conformance/")
            && !text_path.contains("/qitos-bench/");
        if !is_source {
            continue;
        }
        let text = read(&path)?;
        let (mut current, mut end) = (String::new(), None::<String>);
        for line in text.lines().take_while(|line| *line != "#[cfg(test)]") {
            if line.trim_start().starts_with("//") {
                continue;
            }
            if let Some(subject) = subject(line) {
                current = subject.to_owned();
            }
            if end.is_none() {
                end = naming_function(line, &current);
            }
            for literal in literals(line) {
                if end.is_some() || known.contains_key(literal) {
                    codes.insert(literal.to_owned());
                }
            }
            if end.as_deref() == Some(line) {
                end = None;
            }
        }
    }
    Ok(codes)
}

/// The codes that have a page.
pub(crate) fn pages(root: &Path) -> Result<BTreeSet<String>, String> {
    Ok(files(&root.join("docs/errors"), &["md"])?
        .iter()
        .filter_map(|path| path.file_stem())
        .map(|stem| stem.to_string_lossy().into_owned())
        .filter(|stem| stem != "README")
        .collect())
}

/// The text of a page.
pub(crate) fn page(code: &str, entry: &Entry) -> String {
    format!(
        "# `{code}`\n\n## What happened\n\n{}\n\n## What to do\n\n{}\n",
        entry.happened, entry.remedy
    )
}

/// Writes the pages of all codes and removes those of codes that are gone.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    let index = index(root)?;
    let codes = codes(root, &index)?;
    let folder = root.join("docs/errors");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for stale in pages(root)?.difference(&codes) {
        std::fs::remove_file(folder.join(format!("{stale}.md"))).map_err(failed)?;
    }
    let mut without = Vec::new();
    for code in &codes {
        match index.get(code) {
            Some(entry) => std::fs::write(folder.join(format!("{code}.md")), page(code, entry))
                .map_err(failed)?,
            None => without.push(code.as_str()),
        }
    }
    if without.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "docs/errors/index.txt says nothing about: {}",
            without.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::root;

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let root = root();
        let index = index(&root).unwrap();
        let codes = codes(&root, &index).unwrap();
        assert!(codes.len() > 100, "the sources were not found");
        let unexplained: Vec<&String> = codes
            .iter()
            .filter(|code| !index.contains_key(*code))
            .collect();
        assert!(
            unexplained.is_empty(),
            "explain in docs/errors/index.txt: {unexplained:?}"
        );
        assert_eq!(
            pages(&root).unwrap(),
            codes,
            "run `cargo xtask error-pages`"
        );
        for code in &codes {
            let path = root.join(format!("docs/errors/{code}.md"));
            assert_eq!(
                read(&path).unwrap(),
                page(code, &index[code]),
                "run `cargo xtask error-pages`"
            );
        }
    }

    #[test]
    fn codes_are_found_where_functions_return_them() {
        assert_eq!(
            subject("impl ContractError for StoreError {"),
            Some("StoreError")
        );
        assert_eq!(
            subject("impl<T: Debug> Error for Wrapped<T> {"),
            Some("Wrapped")
        );
        assert_eq!(
            naming_function("    fn code(&self) -> &str {", "X").as_deref(),
            Some("    }")
        );
        assert!(
            naming_function(
                "    pub const fn as_str(self) -> &'static str {",
                "ErrorCode"
            )
            .is_some()
        );
        assert!(
            naming_function("    pub const fn as_str(self) -> &'static str {", "Mode").is_none()
        );
        assert_eq!(
            literals(r#"A => "a_b", B => "Not one", C => "c""#).collect::<Vec<_>>(),
            ["a_b", "c"]
        );
    }
}
