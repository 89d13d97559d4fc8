use serde_json::{Value, json};

use super::*;
use crate::error::{ContractError, Performed};

fn token(text: &str) -> SandboxToken {
    text.parse().unwrap()
}

fn policy_record() -> Value {
    let policy = SandboxPolicy::new("base", PolicyOptions::default()).unwrap();
    serde_json::to_value(policy).unwrap()
}

#[test]
fn tokens_are_bounded_and_start_with_a_letter_or_digit() {
    assert!("a".repeat(255).parse::<SandboxToken>().is_ok());
    assert!("a".repeat(256).parse::<SandboxToken>().is_ok());
    assert!("a".repeat(257).parse::<SandboxToken>().is_err());
    assert!("sha256:0+1@x.y_z-".parse::<SandboxToken>().is_ok());
    for text in ["", "-a", "a b", "é", "a/b"] {
        assert!(text.parse::<SandboxToken>().is_err(), "{text}");
    }
}

#[test]
fn the_policy_record_writes_the_constants_and_refuses_any_other_value() {
    // SBX-2
    let written = policy_record();
    assert_eq!(written["schema_version"], "qitos.sandbox.policy/v1");
    assert_eq!(written["secrets"], json!([]));
    assert_eq!(written["run_as_uid"], 65_532);
    assert!(serde_json::from_value::<SandboxPolicy>(written.clone()).is_ok());
    for (field, forbidden) in [
        ("schema_version", json!("qitos.sandbox.policy/v2")),
        ("read_only_root", json!(false)),
        ("drop_capabilities", json!(false)),
        ("no_new_privileges", json!(false)),
        ("allow_devices", json!(true)),
        ("privileged", json!(true)),
        ("host_pid", json!(true)),
        ("host_ipc", json!(true)),
        ("secrets", json!(["x"])),
        ("provider_requests_host_side", json!(false)),
        ("supports_pause", json!(true)),
        ("run_as_uid", json!(0)),
        ("run_as_gid", json!(0)),
        ("network_mode", json!("allowlist")),
        ("workspace_destination", json!("/a/../b")),
    ] {
        let mut record = written.clone();
        record[field] = forbidden;
        assert!(
            serde_json::from_value::<SandboxPolicy>(record).is_err(),
            "{field}"
        );
    }
}

#[test]
fn records_refuse_unknown_and_missing_fields() {
    let written = policy_record();
    for field in written.as_object().unwrap().keys() {
        let mut record = written.clone();
        record.as_object_mut().unwrap().remove(field);
        assert!(
            serde_json::from_value::<SandboxPolicy>(record).is_err(),
            "{field}"
        );
    }
    let mut record = written;
    record["more"] = json!(1);
    assert!(serde_json::from_value::<SandboxPolicy>(record).is_err());
    // An optional field must be there, too, if only as null.
    let receipt = json!({"sandbox_id":"s","status":"cleaned","container_absent":true,"staging_absent":true,
        "repeated":false,"processes_absent":true,"cgroup_absent":true});
    assert!(serde_json::from_value::<SandboxCleanupReceipt>(receipt.clone()).is_err());
    let mut whole = receipt;
    whole["absence_proof"] = Value::Null;
    assert!(serde_json::from_value::<SandboxCleanupReceipt>(whole).is_ok());
}

#[test]
fn limits_of_zero_are_no_policy() {
    for limits in [
        SandboxLimits {
            pids: 0,
            ..SandboxLimits::default()
        },
        SandboxLimits {
            cpu_count: 0.0,
            ..SandboxLimits::default()
        },
        SandboxLimits {
            cpu_count: f64::NAN,
            ..SandboxLimits::default()
        },
    ] {
        let options = PolicyOptions {
            limits,
            ..PolicyOptions::default()
        };
        assert!(SandboxPolicy::new("base", options).is_err());
    }
}

#[test]
fn safety_is_derived_from_facts_and_a_contradiction_is_refused() {
    // SBX-1
    let mut facts = SandboxCapabilities::unobserved(token("local"));
    assert!(!facts.safe_for_executable_tools());
    assert_eq!(facts.missing_for_executable_tools().len(), 16);
    for fact in [
        &mut facts.isolated,
        &mut facts.non_root,
        &mut facts.read_only_root,
        &mut facts.writable_workspace_only,
        &mut facts.network_disabled,
        &mut facts.capabilities_dropped,
        &mut facts.no_new_privileges,
        &mut facts.cpu_bounded,
        &mut facts.memory_bounded,
        &mut facts.processes_bounded,
        &mut facts.provider_requests_host_side,
        &mut facts.cleanup_required,
        &mut facts.disk_bounded,
        &mut facts.output_bounded,
        &mut facts.time_bounded,
        &mut facts.private_workspace,
    ] {
        *fact = true;
    }
    assert!(facts.safe_for_executable_tools());
    let mut record = serde_json::to_value(&facts).unwrap();
    assert!(serde_json::from_value::<SandboxCapabilities>(record.clone()).is_ok());
    record["credentials_injected"] = json!(true);
    assert!(serde_json::from_value::<SandboxCapabilities>(record).is_err());
}

#[test]
fn a_lost_sandbox_is_unavailable_and_its_effect_unknown() {
    // SBX-11
    let error = EnvError::lost();
    assert_eq!(error.code(), "sandbox_unavailable");
    assert_eq!(error.reasons()[0].code, "sandbox_lost");
    assert_eq!(error.performed(), Performed::Unknown);
    assert_eq!(EnvError::Closed.performed(), Performed::No);
}

#[test]
fn group_names_read_back() {
    for group in OpsGroup::ALL {
        assert_eq!(OpsGroup::named(group.as_str()), Some(group));
    }
    assert_eq!(OpsGroup::named("gui"), None);
}
