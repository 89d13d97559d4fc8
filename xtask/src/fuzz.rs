//! `cargo xtask fuzz TARGET...|all [--seconds N]`: coverage-guided fuzzing on the stable toolchain.
//!
//! The coverage flags are those that `cargo fuzz` passes, without a sanitizer: a sanitizer needs a nightly
//! toolchain, and code without `unsafe` has little for it to find. Two targets run at a time.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::repository::files;

/// A target and the folder of `fixtures/provider-streams` that its seeds come from.
const TARGETS: [(&str, &str); 2] = [
    ("sse_decode", "openai-chat"),
    ("chat_stream", "openai-chat"),
];

const COVERAGE_FLAGS: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
];

/// Memory of one target at most, its corpus included; the oracles bound single inputs far below.
const RSS_LIMIT_MB: u32 = 512;
/// Largest input.
const LARGEST_INPUT: u32 = 4_096;
/// An input that takes longer is a finding.
const SLOWEST_SECONDS: u32 = 10;

/// Builds and runs the targets that the arguments name.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let (targets, seconds) = parse(arguments)?;
    let programs = build(root)?;
    let mut failed = Vec::new();
    for pair in targets.chunks(2) {
        let mut running = Vec::new();
        for (target, folder) in pair {
            running.push(Run::start(root, &programs, target, folder, seconds)?);
        }
        for run in running {
            if let Err(message) = run.finish() {
                failed.push(message);
            }
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed.join("\n"))
    }
}

type Target = (&'static str, &'static str);

fn parse(arguments: &[String]) -> Result<(Vec<Target>, u32), String> {
    let names = TARGETS.map(|(name, _)| name).join("|");
    let usage = format!("usage: cargo xtask fuzz all|{names}... [--seconds N]");
    let mut targets = Vec::new();
    let mut seconds = 60;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--seconds" {
            let number = rest.next().and_then(|number| number.parse().ok());
            seconds = number.filter(|number| *number > 0).ok_or(&usage)?;
        } else if argument == "all" {
            targets.extend(TARGETS);
        } else {
            let found = TARGETS.into_iter().find(|(name, _)| name == argument);
            targets.push(found.ok_or(&usage)?);
        }
    }
    if targets.is_empty() {
        return Err(usage);
    }
    Ok((targets, seconds))
}

/// Builds every target; returns the folder of the programs.
fn build(root: &Path) -> Result<PathBuf, String> {
    let host = host()?;
    let output = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), PathBuf::from)
        .join("fuzzing");
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--release",
            "--locked",
            "--bins",
            "--manifest-path",
        ])
        .arg(root.join("fuzz/Cargo.toml"))
        // With a target named, the flags do not reach build scripts and macros.
        .args(["--target", &host])
        .env("CARGO_TARGET_DIR", &output)
        .env("CARGO_ENCODED_RUSTFLAGS", COVERAGE_FLAGS.join("\u{1f}"))
        .status()
        .map_err(|error| format!("cargo build: {error}"))?;
    if !status.success() {
        return Err("the fuzz targets do not build".to_owned());
    }
    Ok(output.join(host).join("release"))
}

fn host() -> Result<String, String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .map_err(|error| format!("rustc: {error}"))?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: ").map(str::to_owned))
        .ok_or_else(|| "rustc names no host".to_owned())
}

/// A target at work.
struct Run {
    target: &'static str,
    program: Child,
    log: PathBuf,
    artifacts: PathBuf,
}

impl Run {
    fn start(
        root: &Path,
        programs: &Path,
        target: &'static str,
        folder: &str,
        seconds: u32,
    ) -> Result<Self, String> {
        let io = |error: std::io::Error| format!("{target}: {error}");
        let corpus = root.join("fuzz/corpus").join(target);
        let seeds = programs.join("seeds").join(target);
        let artifacts = root.join("fuzz/artifacts").join(target);
        for directory in [&corpus, &seeds, &artifacts] {
            fs::create_dir_all(directory).map_err(io)?;
        }
        let dictionary = programs.join("seeds").join(format!("{target}.dict"));
        write_seeds(root, folder, &seeds, &dictionary)?;
        let log = artifacts.join("log");
        let output = File::create(&log).map_err(io)?;
        let program = Command::new(programs.join(target))
            .arg(&corpus)
            .arg(&seeds)
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-rss_limit_mb={RSS_LIMIT_MB}"))
            .arg(format!("-max_len={LARGEST_INPUT}"))
            .arg(format!("-timeout={SLOWEST_SECONDS}"))
            .arg(format!("-dict={}", dictionary.display()))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .args(["-print_final_stats=1", "-use_value_profile=0"])
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(io)?)
            .stderr(output)
            .spawn()
            .map_err(io)?;
        Ok(Run {
            target,
            program,
            log,
            artifacts,
        })
    }

    /// Waits for the end; says what was covered, or what was found.
    fn finish(mut self) -> Result<(), String> {
        let target = self.target;
        let status = self
            .program
            .wait()
            .map_err(|error| format!("{target}: {error}"))?;
        let log = String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned();
        if !status.success() {
            let lines: Vec<&str> = log.lines().collect();
            let last = lines
                .get(lines.len().saturating_sub(40)..)
                .unwrap_or_default();
            return Err(format!(
                "{target}: a finding in {} ({status})\n{}",
                self.artifacts.display(),
                last.join("\n")
            ));
        }
        let first = covered(&log, "INITED");
        let last = covered(&log, "DONE");
        let executed = log
            .lines()
            .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
            .unwrap_or_default()
            .trim();
        // Without coverage the fuzzer would guess blindly and still say that all is well.
        match (first, last) {
            (Some(first), Some(last)) if first > 0 && last >= first => {
                say(&format!(
                    "ok   {target}: {executed} inputs, {first} edges from the seeds, {last} at the end"
                ));
                Ok(())
            }
            _ => Err(format!(
                "{target}: no coverage was measured: {first:?}, {last:?}"
            )),
        }
    }
}

/// The edges that libFuzzer reports in its line of that event.
fn covered(log: &str, event: &str) -> Option<u32> {
    let line = log.lines().rev().find(|line| line.contains(event))?;
    let (_, rest) = line.split_once("cov: ")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Seeds: every fixture under each set-up and two cuts. Dictionary: the short strings that the fixtures hold.
fn write_seeds(root: &Path, folder: &str, seeds: &Path, dictionary: &Path) -> Result<(), String> {
    let fixtures = root.join("fixtures/provider-streams").join(folder);
    let mut words = BTreeSet::new();
    for fixture in files(&fixtures, &["sse"])? {
        let body = fs::read(&fixture).map_err(|error| error.to_string())?;
        let name = fixture.file_stem().unwrap_or_default().to_string_lossy();
        for setup in [0u8, 3, 4] {
            let mut seed = vec![0, 40, setup];
            seed.extend_from_slice(&body);
            fs::write(seeds.join(format!("{name}-{setup}")), seed)
                .map_err(|error| error.to_string())?;
        }
        let text = String::from_utf8_lossy(&body).into_owned();
        words.extend(
            text.split('"')
                .filter(|word| (2..=40).contains(&word.len()))
                .filter(|word| {
                    word.bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte))
                })
                .map(|word| format!("\"\\\"{word}\\\"\"")),
        );
    }
    if words.is_empty() {
        return Err(format!("{} holds no seeds", fixtures.display()));
    }
    words.extend(
        [
            "data: ",
            "event: ",
            "\\x0a\\x0a",
            "\\x0d\\x0a",
            "[DONE]",
            "\\xEF\\xBB\\xBF",
            "null",
        ]
        .map(|word| format!("\"{word}\"")),
    );
    let lines: Vec<String> = words.into_iter().collect();
    fs::write(dictionary, lines.join("\n") + "\n").map_err(|error| error.to_string())
}

#[expect(clippy::print_stdout, reason = "this is a command-line program")]
fn say(message: &str) {
    println!("{message}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::{read, root};

    #[test]
    fn every_target_is_built_and_run() {
        let manifest = read(&root().join("fuzz/Cargo.toml")).unwrap();
        let built: Vec<&str> = manifest
            .split("[[bin]]")
            .skip(1)
            .filter_map(|part| part.split('"').nth(1))
            .collect();
        assert_eq!(built, TARGETS.map(|(name, _)| name));
    }

    #[test]
    fn coverage_is_read_from_the_lines_of_the_fuzzer() {
        let log = "#12\tINITED cov: 340 ft: 9 corp: 3/1Kb\n#90\tDONE   cov: 351 ft: 12\n";
        assert_eq!(
            (covered(log, "INITED"), covered(log, "DONE")),
            (Some(340), Some(351))
        );
        assert_eq!(covered("#12\tINITED exec/s: 0", "INITED"), None);
    }
}
