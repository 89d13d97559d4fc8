use std::path::Path;

use qitos_config::{AgentConfig, ConfigErrorCode, MAX_BYTES};

use crate::document;

#[track_caller]
fn check_refused(path: &Path, code: ConfigErrorCode) {
    let errors = AgentConfig::from_file(path).unwrap_err();
    assert_eq!(errors.errors()[0].code, code);
    let name = path.file_name().unwrap().to_str().unwrap();
    assert_eq!(errors.errors()[0].source.as_deref(), Some(name));
    let directory = path.parent().unwrap().to_str().unwrap();
    assert!(
        !errors.to_string().contains(directory),
        "the path is shown: {errors}"
    );
}

#[test]
fn only_a_readable_regular_file_is_a_source() {
    // CFG-11
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.yaml");
    check_refused(&missing, ConfigErrorCode::ConfigSourceInvalid);
    let directory = folder.path().join("directory.yaml");
    std::fs::create_dir(&directory).unwrap();
    check_refused(&directory, ConfigErrorCode::ConfigSourceInvalid);
    let pipe = folder.path().join("pipe.yaml");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    check_refused(&pipe, ConfigErrorCode::ConfigSourceInvalid);
    let looping = folder.path().join("loop.yaml");
    std::os::unix::fs::symlink(&looping, &looping).unwrap();
    check_refused(&looping, ConfigErrorCode::ConfigSourceInvalid);
    let long = folder.path().join("long.yaml");
    std::fs::write(&long, vec![b'#'; MAX_BYTES + 1]).unwrap();
    check_refused(&long, ConfigErrorCode::ConfigSyntaxInvalid);
    let marked = folder.path().join("bom.yaml");
    std::fs::write(&marked, format!("\u{feff}{}", document("{name: a}", ""))).unwrap();
    check_refused(&marked, ConfigErrorCode::ConfigSyntaxInvalid);
    let latin = folder.path().join("latin.yaml");
    std::fs::write(&latin, b"schema: qitos.agent\nagent: \xe9\n").unwrap();
    check_refused(&latin, ConfigErrorCode::ConfigSyntaxInvalid);
    let errors = AgentConfig::from_file(&latin).unwrap_err();
    assert_eq!(
        (errors.errors()[0].line, errors.errors()[0].column),
        (Some(2), Some(8))
    );
}

#[test]
fn paths_stand_beside_the_file_wherever_the_process_is() {
    // CFG-10, check cfg.cwd_independent: the process's directory is the crate, the file's is not
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("work")).unwrap();
    let path = folder.path().join("agent.yaml");
    std::fs::write(
        &path,
        document("{name: a}", "").replace("workspace: .", "workspace: ./work"),
    )
    .unwrap();
    let config = AgentConfig::from_file(&path).unwrap();
    assert_eq!(config.workspace(), folder.path().join("work"));
    assert_eq!(config.data_root(), folder.path().join(".qitos"));
    assert_eq!(config.base_dir(), folder.path());
    let session = config.runtime().session().path().unwrap();
    assert_eq!(
        config.resolve_path(session),
        folder.path().join(".qitos/sessions.sqlite3")
    );
    let trajectory = config.runtime().trajectory().output().unwrap();
    assert_eq!(
        config.resolve_path(trajectory),
        folder.path().join(".qitos/trajectory.journal")
    );
}

#[test]
fn a_file_named_json_must_be_json() {
    // CFG-1
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.json");
    std::fs::write(&path, document("{name: a}", "")).unwrap();
    check_refused(&path, ConfigErrorCode::ConfigSyntaxInvalid);
}
