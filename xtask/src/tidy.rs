//! Rules of the repository that no compiler checks; they run as tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::repository::{files, metadata, read, root};

/// A file that is longer than this needs a reason.
const EXPLAIN_LINES: usize = 600;
/// No file is longer than this.
const MOST_LINES: usize = 1_000;

/// Licences that a dependency may have; the same list as in `deny.toml`.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that must not be in the graph; the same list as in `deny.toml`.
const BANNED: &[&str] = &["openssl-sys", "serde_yaml", "serde_yml", "backoff"];

/// The crates that everything replaceable lives in.
const IMPLEMENTATIONS: &[&str] = &[
    "qitos-kernel",
    "qitos-config",
    "qitos-kit",
    "qitos-journal",
    "qitos-providers",
    "qitos-store-sqlite",
    "qitos-store-postgres",
    "qitos-sandbox",
    "qitos-env-docker",
    "qitos-mcp",
    "qitos-otel",
];

/// Whether `from` may depend on `to`; an edge that is not written here does not exist.
fn may_depend(from: &str, to: &str, is_dev: bool) -> bool {
    let is_implementation = IMPLEMENTATIONS.contains(&from);
    let to_contracts = to == "qitos-contracts";
    let for_tests = is_dev && matches!(to, "qitos-conformance" | "qitos-kit");
    match from {
        "qitos-contracts" | "qitos-macros" => false,
        "qitos-conformance" => to_contracts,
        _ if is_implementation => to_contracts || for_tests,
        "qitos" => {
            to_contracts
                || to == "qitos-macros"
                || IMPLEMENTATIONS.contains(&to)
                || (is_dev && to == "qitos-conformance")
        }
        "qit" => to == "qitos" || to == "qitos-conformance" || to_contracts,
        "qita" => to == "qitos" || to_contracts || (is_dev && to == "qitos-conformance"),
        "qitos-bench" => true,
        "xtask" => to == "qitos-config",
        _ => false,
    }
}

fn strings<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

fn list<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The packages of the workspace.
fn members(metadata: &Value) -> Vec<&Value> {
    let ids: BTreeSet<&str> = list(metadata, "/workspace_members")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    list(metadata, "/packages")
        .iter()
        .filter(|package| ids.contains(strings(package, "/id")))
        .collect()
}

/// Everything that the normal and build dependencies of `name` pull in, with all of its features.
fn tree(metadata: &Value, name: &str) -> BTreeSet<String> {
    let names: BTreeMap<&str, &str> = list(metadata, "/packages")
        .iter()
        .map(|package| (strings(package, "/id"), strings(package, "/name")))
        .collect();
    let edges: BTreeMap<&str, Vec<&str>> = list(metadata, "/resolve/nodes")
        .iter()
        .map(|node| {
            let targets = list(node, "/deps")
                .iter()
                .filter(|dependency| {
                    list(dependency, "/dep_kinds")
                        .iter()
                        .any(|kind| strings(kind, "/kind") != "dev")
                })
                .map(|dependency| strings(dependency, "/pkg"))
                .collect();
            (strings(node, "/id"), targets)
        })
        .collect();
    let mut open: Vec<&str> = names
        .iter()
        .filter(|(_, known)| **known == name)
        .map(|(id, _)| *id)
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            open.extend(edges.get(id).into_iter().flatten());
        }
    }
    seen.iter()
        .filter_map(|id| names.get(id))
        .map(|name| (*name).to_owned())
        .collect()
}

/// The path of `file` inside the repository.
fn relative(root: &Path, file: &Path) -> String {
    file.strip_prefix(root)
        .unwrap_or(file)
        .to_string_lossy()
        .replace('\\', "/")
}

#[test]
fn crates_depend_only_in_the_written_direction() {
    let metadata = metadata(&root(), &["--no-deps"]).unwrap();
    let members = members(&metadata);
    assert!(members.len() > 5, "the workspace was not found");
    let names: BTreeSet<&str> = members
        .iter()
        .map(|package| strings(package, "/name"))
        .collect();
    let mut refused = Vec::new();
    for package in &members {
        let from = strings(package, "/name");
        for dependency in list(package, "/dependencies") {
            let to = strings(dependency, "/name");
            let is_dev = strings(dependency, "/kind") == "dev";
            if names.contains(to) && !may_depend(from, to, is_dev) {
                let kind = if is_dev { " (dev)" } else { "" };
                refused.push(format!("{from} -> {to}{kind}"));
            }
        }
    }
    assert!(refused.is_empty(), "edges that style forbids: {refused:?}");
}

#[test]
fn internal_dev_dependencies_have_no_version() {
    // A version would have to be published before the crate that tests with it.
    let metadata = metadata(&root(), &["--no-deps"]).unwrap();
    let members = members(&metadata);
    let names: BTreeSet<&str> = members
        .iter()
        .map(|package| strings(package, "/name"))
        .collect();
    let mut versioned = Vec::new();
    for package in &members {
        if strings(package, "/name") == "xtask"
            || package.pointer("/publish") == Some(&Value::Array(Vec::new()))
        {
            continue;
        }
        for dependency in list(package, "/dependencies") {
            let is_internal_dev = strings(dependency, "/kind") == "dev"
                && names.contains(strings(dependency, "/name"));
            if is_internal_dev && strings(dependency, "/req") != "*" {
                versioned.push(format!(
                    "{} -> {}",
                    strings(package, "/name"),
                    strings(dependency, "/name")
                ));
            }
        }
    }
    assert!(versioned.is_empty(), "use a path alone: {versioned:?}");
}

#[test]
fn contracts_and_conformance_know_neither_runtime_nor_network() {
    // DESIGN decision 3
    let metadata = metadata(&root(), &["--all-features"]).unwrap();
    for name in ["qitos-contracts", "qitos-conformance"] {
        let tree = tree(&metadata, name);
        assert!(tree.contains("serde"), "the tree of {name} was not found");
        for refused in [
            "tokio",
            "reqwest",
            "hyper",
            "h2",
            "rustls",
            "native-tls",
            "openssl-sys",
            "ring",
            "aws-lc-rs",
            "async-std",
            "smol",
        ] {
            assert!(!tree.contains(refused), "{name} pulls in {refused}");
        }
    }
    // The walk itself finds what is there.
    assert!(tree(&metadata, "qitos-kit").contains("tokio"));
}

#[test]
fn files_are_short_or_say_why_they_are_not() {
    let root = root();
    let listed: BTreeSet<String> = read(&root.join("xtask/long-files.txt"))
        .unwrap()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once(" | ").unwrap().0.to_owned())
        .collect();
    let mut long = BTreeSet::new();
    let mut too_long = Vec::new();
    for file in files(&root, &["rs"]).unwrap() {
        let name = relative(&root, &file);
        // Tests modules are left out of the count, as in the figures of the style guide.
        let is_test = name.contains("/tests/") || name.ends_with("tests.rs");
        let text = read(&file).unwrap();
        let lines = text
            .lines()
            .take_while(|line| is_test || *line != "#[cfg(test)]")
            .count();
        if is_test {
            continue;
        }
        if lines > MOST_LINES {
            too_long.push(format!("{name}: {lines}"));
        } else if lines > EXPLAIN_LINES {
            long.insert(name);
        }
    }
    assert!(too_long.is_empty(), "over {MOST_LINES} lines: {too_long:?}");
    assert_eq!(
        long, listed,
        "xtask/long-files.txt lists exactly the files over {EXPLAIN_LINES} lines"
    );
}

/// Whether a licence expression leaves a choice that is allowed.
fn is_allowed(expression: &str) -> bool {
    let plain = expression.replace(['(', ')'], " ").replace('/', " OR ");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let in_list = |text: &str| LICENCES.contains(&words(text).as_str());
    if expression.contains('(') && expression.contains(" AND ") {
        // Each group in brackets must leave a choice of its own.
        return words(&plain)
            .split(" AND ")
            .all(|group| group.split(" OR ").any(in_list));
    }
    words(&plain)
        .split(" OR ")
        .any(|choice| choice.split(" AND ").all(in_list))
}

#[test]
fn dependencies_have_allowed_licences_and_none_is_banned() {
    let metadata = metadata(&root(), &["--all-features"]).unwrap();
    let mut refused = Vec::new();
    for package in list(&metadata, "/packages") {
        let name = strings(package, "/name");
        let licence = strings(package, "/license");
        if !is_allowed(licence) || BANNED.contains(&name) {
            refused.push(format!("{name}: {licence}"));
        }
    }
    assert!(refused.is_empty(), "{refused:?}");
    let deny = read(&root().join("deny.toml")).unwrap();
    for word in LICENCES.iter().chain(BANNED) {
        assert!(
            deny.contains(&format!("\"{word}\"")),
            "deny.toml lacks {word}"
        );
    }
}

#[test]
fn no_line_ends_with_white_space_and_every_file_ends_with_one_line_feed() {
    let root = root();
    let mut wrong = Vec::new();
    for file in files(&root, &["rs", "toml", "md", "txt", "yml"]).unwrap() {
        let name = relative(&root, &file);
        if name.starts_with("fixtures/") {
            continue;
        }
        let text = read(&file).unwrap();
        if let Some(index) = text.lines().position(|line| line.ends_with([' ', '\t'])) {
            wrong.push(format!("{name}:{}", index + 1));
        }
        if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
            wrong.push(format!("{name}: end of file"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn no_module_has_a_name_that_says_nothing() {
    let root = root();
    for file in files(&root.join("crates"), &["rs"]).unwrap() {
        let name = relative(&root, &file);
        let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
        let folder = file
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        for part in [stem, folder] {
            let empty = [
                "utils", "util", "common", "helpers", "misc", "imp", "types", "prelude",
            ];
            assert!(!empty.contains(&part.as_str()), "{name}");
        }
    }
}
