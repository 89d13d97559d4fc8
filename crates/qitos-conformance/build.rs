//! Puts the stream fixtures of the repository into the crate, so that an installed program can replay them.
//!
//! Every `fixtures/provider-streams/<dialect>/<case>.sse` becomes one entry; nobody keeps a list by hand.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let fixtures = here.join("../../fixtures/provider-streams");
    println!("cargo:rerun-if-changed={}", fixtures.display());
    println!("cargo:rerun-if-changed=build.rs");
    let mut table = String::from("&[\n");
    for dialect in sorted(&fixtures)?.iter().filter(|path| path.is_dir()) {
        for stream in sorted(dialect)? {
            if stream
                .extension()
                .is_some_and(|extension| extension == "sse")
            {
                add(&mut table, dialect, &stream)?;
            }
        }
    }
    table.push(']');
    fs::write(
        PathBuf::from(variable("OUT_DIR")?).join("stream_fixtures.rs"),
        table,
    )
}

/// What cargo tells build scripts through the environment.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment is how cargo speaks to a build script"
)]
fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(io::Error::other)
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

fn add(table: &mut String, dialect: &Path, stream: &Path) -> io::Result<()> {
    let expected = stream.with_extension("expected.json");
    let text = fs::read_to_string(&expected)?;
    let rule = text
        .split_once("\"rule\"")
        .and_then(|(_, rest)| rest.split('"').nth(1))
        .ok_or_else(|| io::Error::other(format!("{}: no rule", expected.display())))?;
    writeln!(
        table,
        "StreamFixture {{ dialect: {:?}, case: {:?}, rules: &[{:?}], bytes: include_bytes!({:?}), expected: include_str!({:?}) }},",
        name(dialect),
        name(stream),
        rule,
        fs::canonicalize(stream)?.display().to_string(),
        fs::canonicalize(&expected)?.display().to_string(),
    )
    .map_err(io::Error::other)
}

fn name(path: &Path) -> String {
    path.file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default()
}
