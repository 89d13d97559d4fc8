//! `qit new`: a project that runs at once and builds as a crate (CLI-11, CLI-12).

use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::answer::{Answer, Outcome, quoted};
use crate::args::{New, Template};
use crate::commands::schema;
use crate::exit_code::ExitCode;
use crate::failure::Failure;

/// The version of the library that a project depends on.
const LIBRARY_VERSION: &str = "\"0.1\"";

const NOTES: &[(&str, &str)] = &[
    ("agent.yaml", include_str!("../templates/notes/agent.yaml")),
    (
        "Cargo.toml",
        include_str!("../templates/notes/cargo_toml.txt"),
    ),
    ("src/lib.rs", include_str!("../templates/notes/lib_rs.txt")),
    (
        "src/main.rs",
        include_str!("../templates/notes/main_rs.txt"),
    ),
    (
        "tests/agent.rs",
        include_str!("../templates/notes/agent_test_rs.txt"),
    ),
    (
        "README.md",
        include_str!("../templates/notes/readme_md.txt"),
    ),
    (
        "credentials.example.yaml",
        include_str!("../templates/credentials_example_yaml.txt"),
    ),
    (".gitignore", include_str!("../templates/gitignore.txt")),
];

const EMPTY: &[(&str, &str)] = &[
    ("agent.yaml", include_str!("../templates/empty/agent.yaml")),
    (
        "README.md",
        include_str!("../templates/empty/readme_md.txt"),
    ),
    (
        "credentials.example.yaml",
        include_str!("../templates/credentials_example_yaml.txt"),
    ),
    (".gitignore", include_str!("../templates/gitignore.txt")),
];

/// Makes the project's directory.
pub(crate) fn perform(arguments: &New) -> Outcome {
    let name = arguments
        .name
        .as_deref()
        .or(arguments.agent_name.as_deref())
        .unwrap_or_default();
    if !is_name(name) {
        return Err(Failure::usage(
            format!("`{}` is no name for a project", name.escape_debug()),
            "a lower-case letter, then lower-case letters, digits and `_`; not a word of the Rust language",
        ));
    }
    let files = match arguments.template {
        Template::Notes => NOTES,
        Template::Empty => EMPTY,
        Template::Coding => {
            return Err(Failure::new(
                ExitCode::Usage,
                "template_unavailable",
                "the template `coding` needs a sandbox, which is not part of this release",
                "use `--template notes` or `--template empty`",
            ));
        }
    };
    let target = if arguments.output_dir == Path::new(".") {
        PathBuf::from(name)
    } else {
        arguments.output_dir.join(name)
    };
    make(&target, name, files, arguments.qitos_path.as_deref())?;
    let config = quoted(&target.join("agent.yaml"));
    let mut written: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
    written.push(".qitos/agent.schema.json");
    Ok(Answer::new(
        format!(
            "made {}\n\nnext  qit run --config {config}",
            quoted(&target)
        ),
        json!({"directory": target.to_string_lossy(), "files": written}),
    ))
}

/// Makes the notes project at a place of the caller's choice.
pub(crate) fn make_notes(target: &Path, name: &str) -> Result<(), Failure> {
    make(target, name, NOTES.get(..1).unwrap_or_default(), None)
}

fn is_name(name: &str) -> bool {
    const TAKEN: &[&str] = &[
        "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum",
        "extern", "false", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "match", "mod",
        "move", "mut", "pub", "qitos", "ref", "return", "self", "static", "struct", "super",
        "test", "tokio", "trait", "true", "type", "unsafe", "use", "where", "while",
    ];
    let first = name.starts_with(|letter: char| letter.is_ascii_lowercase());
    let rest = name
        .bytes()
        .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    first && rest && name.len() <= 64 && !TAKEN.contains(&name)
}

/// Writes everything beside the target and renames it, so that there never is half a project.
fn make(
    target: &Path,
    name: &str,
    files: &[(&str, &str)],
    library: Option<&Path>,
) -> Result<(), Failure> {
    if target.symlink_metadata().is_ok() {
        return Err(exists(target));
    }
    let parent = match target.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        return Err(Failure::usage(
            format!("{} is not a directory", quoted(parent)),
            "make it, or name another with `--output-dir`",
        ));
    }
    let library = match library {
        None => LIBRARY_VERSION.to_owned(),
        Some(path) => {
            let path = path
                .canonicalize()
                .map_err(|error| Failure::file("find the library", &error))?;
            format!("{{ path = {:?} }}", path.to_string_lossy())
        }
    };
    let draft = parent.join(format!(".{name}.partial-{}", std::process::id()));
    let written = write_all(&draft, name, files, &library).and_then(|()| {
        // Renaming replaces an empty directory without a word; a second look keeps the promise.
        if target.symlink_metadata().is_ok() {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        std::fs::rename(&draft, target)
    });
    written.map_err(|error| {
        let _ = std::fs::remove_dir_all(&draft);
        if error.kind() == io::ErrorKind::AlreadyExists
            || error.kind() == io::ErrorKind::DirectoryNotEmpty
        {
            exists(target)
        } else {
            Failure::file("write the project", &error)
        }
    })
}

fn write_all(draft: &Path, name: &str, files: &[(&str, &str)], library: &str) -> io::Result<()> {
    std::fs::create_dir(draft)?;
    for (path, text) in files {
        let file: PathBuf = draft.join(path);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let text = text.replace("{{name}}", name).replace("{{qitos}}", library);
        std::fs::write(file, text)?;
    }
    let data_root = draft.join(".qitos");
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&data_root)?;
    std::fs::write(data_root.join("agent.schema.json"), schema::text())
}

fn exists(target: &Path) -> Failure {
    Failure::new(
        ExitCode::Usage,
        "project_exists",
        format!("{} exists already and is left as it is", quoted(target)),
        "choose another name, or remove it yourself",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_modules() {
        // CLI-12
        for good in ["a", "notes_agent", "a1_"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "A", "1a", "_a", "a-b", "a b", "../a", "fn", "ä"] {
            assert!(!is_name(bad), "{bad}");
        }
        assert!(is_name(&"a".repeat(64)));
        assert!(!is_name(&"a".repeat(65)));
    }

    #[test]
    fn the_example_of_credentials_is_a_credentials_file() {
        // CRD-11
        let text = include_str!("../templates/credentials_example_yaml.txt");
        let found = qitos::config::read_credential_mapping(text, "main");
        assert!(found.is_ok());
    }

    #[test]
    fn every_configuration_of_a_template_is_valid() {
        for files in [NOTES, EMPTY] {
            let text = files[0].1.replace("{{name}}", "agent");
            qitos::config::AgentConfig::from_str(
                &text,
                qitos::config::Format::Yaml,
                std::env::temp_dir(),
            )
            .unwrap();
        }
    }
}
