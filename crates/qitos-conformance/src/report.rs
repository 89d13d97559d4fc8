//! What a run of a suite says: text for people, JSON for scripts.

use std::fmt;

use serde::Serialize;

/// The version of all contracts until the first release.
pub const CONTRACT_VERSION: u32 = 1;

/// How a check ended (decision 23).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It held.
    Pass,
    /// It did not, or could not be shown although it was claimed.
    Fail,
    /// Its capability is not claimed or its hook is absent.
    NotClaimed,
}

impl Status {
    /// The word in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pass => "pass",
            Status::Fail => "fail",
            Status::NotClaimed => "not_claimed",
        }
    }
}

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    id: String,
    status: Status,
    rule: String,
    detail: String,
    #[serde(skip)]
    sentence: String,
}

impl CheckReport {
    pub(crate) fn new(
        id: &str,
        status: Status,
        rules: &[&str],
        sentence: &str,
        detail: &str,
    ) -> Self {
        CheckReport {
            id: id.into(),
            status,
            rule: rules.join(" "),
            detail: detail.into(),
            sentence: sentence.into(),
        }
    }

    /// The name of the check.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How it ended.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// The ids of the rules it proves, separated by spaces.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// What was seen, or what is missing; empty when it passed.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// What the contract says.
    #[must_use]
    pub fn sentence(&self) -> &str {
        &self.sentence
    }
}

/// The outcome of one suite for one implementation.
///
/// `Display` is the text for people; [`Report::to_json`] the object that scripts read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    mechanism: String,
    implementation: String,
    contract_version: u32,
    passed: usize,
    failed: usize,
    not_claimed: usize,
    checks: Vec<CheckReport>,
}

impl Report {
    pub(crate) fn new(mechanism: &str, implementation: &str, checks: Vec<CheckReport>) -> Self {
        let count = |status| checks.iter().filter(|check| check.status == status).count();
        Report {
            mechanism: mechanism.into(),
            implementation: implementation.into(),
            contract_version: CONTRACT_VERSION,
            passed: count(Status::Pass),
            failed: count(Status::Fail),
            not_claimed: count(Status::NotClaimed),
            checks,
        }
    }

    /// This report with the checks of `other` behind its own: one answer for two suites of one mechanism.
    #[must_use]
    pub fn followed_by(self, other: Report) -> Report {
        let mut checks = self.checks;
        checks.extend(other.checks);
        Report::new(&self.mechanism, &self.implementation, checks)
    }

    /// How many checks passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// How many checks failed; an implementation conforms when none did.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.failed
    }

    /// How many checks were not claimed.
    #[must_use]
    pub fn not_claimed(&self) -> usize {
        self.not_claimed
    }

    /// All checks in the order of the suite.
    #[must_use]
    pub fn checks(&self) -> &[CheckReport] {
        &self.checks
    }

    /// The check of that name.
    #[must_use]
    pub fn check(&self, id: &str) -> Option<&CheckReport> {
        self.checks.iter().find(|check| check.id == id)
    }

    /// The object that `qit conformance … --format json` prints.
    ///
    /// # Errors
    /// None in practice: every field is text or a number.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// The report itself when nothing failed, else an error that prints it: `report.conforms().unwrap()` is a
    /// whole test.
    ///
    /// # Errors
    /// [`NotConformant`] when a check failed or none ran.
    pub fn conforms(self) -> Result<Report, NotConformant> {
        if self.failed == 0 && self.passed > 0 {
            Ok(self)
        } else {
            Err(NotConformant(self))
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{} of {} (contract version {})",
            self.mechanism, self.implementation, self.contract_version
        )?;
        for check in &self.checks {
            write!(formatter, "{:<11} {}", check.status.as_str(), check.id)?;
            if check.status == Status::Fail {
                write!(formatter, " [{}] {}", check.rule, check.sentence)?;
            }
            if !check.detail.is_empty() {
                write!(formatter, ": {}", check.detail)?;
            }
            writeln!(formatter)?;
        }
        write!(
            formatter,
            "{} passed, {} failed, {} not claimed",
            self.passed, self.failed, self.not_claimed
        )
    }
}

/// A claimed check failed, or no check ran at all. `Debug` and `Display` print the report.
#[derive(Clone, PartialEq, Eq)]
pub struct NotConformant(pub Report);

impl fmt::Debug for NotConformant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\n{}", self.0)
    }
}

impl fmt::Display for NotConformant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "not conformant:\n{}", self.0)
    }
}

impl std::error::Error for NotConformant {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_report_has_the_shape_that_scripts_read() {
        let report = Report::new(
            "checkpoint-store",
            "memory",
            vec![
                CheckReport::new(
                    "K1.create_zero",
                    Status::Pass,
                    &["SES-28", "STO-1"],
                    "s",
                    "",
                ),
                CheckReport::new("K68.inbox_once", Status::NotClaimed, &["SES-63"], "s", "no"),
            ],
        );
        assert_eq!(
            report.to_json().unwrap(),
            "{\"mechanism\":\"checkpoint-store\",\"implementation\":\"memory\",\"contract_version\":1,\
             \"passed\":1,\"failed\":0,\"not_claimed\":1,\"checks\":[\
             {\"id\":\"K1.create_zero\",\"status\":\"pass\",\"rule\":\"SES-28 STO-1\",\"detail\":\"\"},\
             {\"id\":\"K68.inbox_once\",\"status\":\"not_claimed\",\"rule\":\"SES-63\",\"detail\":\"no\"}]}"
        );
        assert!(report.conforms().is_ok());
    }

    #[test]
    fn nothing_run_is_not_conformant() {
        let nothing = Report::new("m", "i", Vec::new()).conforms();
        assert!(format!("{:?}", nothing.unwrap_err()).contains("0 passed"));
    }
}
