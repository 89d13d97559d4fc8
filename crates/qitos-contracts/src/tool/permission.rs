//! Rules allow, deny, ask, and the durable form of an approval (section 3).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::spec::ToolSpec;
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::ids::{ApprovalId, BatchId, CallId, SessionId, SlotId};

/// What a rule does with the calls it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleEffect {
    /// The call may run.
    Allow,
    /// A person decides.
    Ask,
    /// The call does not run.
    Deny,
}

/// One permission rule (PRM-1). A rule without a selector matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionRule {
    /// What it does.
    pub effect: RuleEffect,
    /// Exact canonical name.
    pub tool_name: Option<Arc<str>>,
    /// Family `f` matches `f` and `f.*`.
    pub tool_family: Option<Arc<str>>,
    /// What an answer covers, for people.
    pub scope: Option<String>,
    /// Text for the model and for people.
    pub message: Option<String>,
}

impl PermissionRule {
    /// A rule for one tool.
    #[must_use]
    pub fn for_tool(effect: RuleEffect, name: &str) -> Self {
        PermissionRule {
            effect,
            tool_name: Some(name.into()),
            tool_family: None,
            scope: None,
            message: None,
        }
    }

    /// A rule for a family of tools.
    #[must_use]
    pub fn for_family(effect: RuleEffect, family: &str) -> Self {
        PermissionRule {
            effect,
            tool_name: None,
            tool_family: Some(family.into()),
            scope: None,
            message: None,
        }
    }

    fn matches(&self, tool: &str) -> bool {
        if self.tool_name.is_none() && self.tool_family.is_none() {
            return false;
        }
        let name_fits = self.tool_name.as_deref().is_none_or(|name| name == tool);
        let family_fits = self.tool_family.as_deref().is_none_or(|family| {
            tool == family
                || tool
                    .strip_prefix(family)
                    .is_some_and(|rest| rest.starts_with('.'))
        });
        name_fits && family_fits
    }
}

/// A rule that could not be understood: `invalid_policy_rule`, the run does not start (PRM-4).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("permission rule {index} is not valid: {reason}")]
pub struct InvalidPolicyRule {
    /// Position in the list.
    pub index: usize,
    /// What is wrong.
    pub reason: &'static str,
}

/// The rules of a run and what happens when none matches.
#[derive(Clone, Debug, Default)]
pub struct PermissionPolicy {
    rules: Vec<PermissionRule>,
    default: Option<RuleEffect>,
}

/// The decision of a policy and what led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDecision {
    /// The strongest effect: deny, then ask, then allow, then the default (PRM-2).
    pub effect: RuleEffect,
    /// Index of the rule, `None` for the default or the tool's own declaration.
    pub rule: Option<usize>,
    /// The rule's message.
    pub message: Option<String>,
}

impl PermissionPolicy {
    /// A policy of `rules`; `default` replaces PRM-3 when nothing matches.
    ///
    /// # Errors
    /// `invalid_policy_rule` for an empty selector text (PRM-4).
    pub fn new(
        rules: Vec<PermissionRule>,
        default: Option<RuleEffect>,
    ) -> Result<Self, InvalidPolicyRule> {
        for (index, rule) in rules.iter().enumerate() {
            let blank = |text: &Option<Arc<str>>| {
                text.as_deref().is_some_and(|text| text.trim().is_empty())
            };
            if blank(&rule.tool_name) || blank(&rule.tool_family) {
                return Err(InvalidPolicyRule {
                    index,
                    reason: "a selector is empty",
                });
            }
        }
        Ok(PermissionPolicy { rules, default })
    }

    /// Decides for one tool; `asks` says that the tool's own `needs_approval` matched.
    ///
    /// Precedence deny > ask > allow > default, whatever the order of the list (PRM-2, PRM-3).
    #[must_use]
    pub fn decide(&self, spec: &ToolSpec, asks: bool) -> RuleDecision {
        let matching = self
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| rule.matches(&spec.name));
        let strongest =
            matching.max_by(|(left, a), (right, b)| a.effect.cmp(&b.effect).then(right.cmp(left)));
        if let Some((index, rule)) = strongest
            && (rule.effect == RuleEffect::Deny || !asks || rule.effect == RuleEffect::Ask)
        {
            return RuleDecision {
                effect: rule.effect,
                rule: Some(index),
                message: rule.message.clone(),
            };
        }
        if asks {
            return RuleDecision {
                effect: RuleEffect::Ask,
                rule: None,
                message: None,
            };
        }
        let harmless = spec.read_only && !spec.permissions.network && !spec.permissions.command;
        let default = self.default.unwrap_or(if harmless {
            RuleEffect::Allow
        } else {
            RuleEffect::Ask
        });
        RuleDecision {
            effect: default,
            rule: None,
            message: None,
        }
    }

    /// Whether a deny rule matches: the only rules that are looked at again after a wait (PRM-13).
    #[must_use]
    pub fn denies(&self, tool: &str) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.effect == RuleEffect::Deny && rule.matches(tool))
    }
}

/// Where an approval request stands (PRM-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// Nobody answered yet.
    Pending,
    /// Yes.
    Approved,
    /// No.
    Denied,
    /// Too late (PRM-15).
    Expired,
    /// The call is no longer the one that was approved (PRM-12).
    Stale,
    /// The yes was used.
    Consumed,
}

/// What an approver can answer (PRM-14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalAnswer {
    /// Run it.
    Approve,
    /// Run it with other arguments.
    Modify,
    /// Do not run it.
    Reject,
    /// Reject the rest of the batch and stop.
    Terminate,
    /// Ask the next approver.
    Escalate,
}

/// A recorded answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalDecision {
    /// The answer.
    pub decision: ApprovalAnswer,
    /// Who gave it.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// Why.
    pub reason: Option<String>,
    /// New arguments of a `modify`.
    pub modified_args: Option<Value>,
}

/// `qitos.approval_request/v1`, stored with the batch before anybody is asked (PRM-9).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRequest {
    /// `approval_` + 32 hex (PRM-10).
    pub approval_id: ApprovalId,
    /// The session.
    pub session_id: SessionId,
    /// The batch.
    pub batch_id: BatchId,
    /// The slot it is for.
    pub slot_id: SlotId,
    /// The call.
    pub call_id: CallId,
    /// Canonical tool name.
    pub tool_name: String,
    /// Digest of the arguments that the answer covers.
    pub args_digest: Digest,
    /// Redacted arguments for people.
    pub args_preview: Value,
    /// What an answer covers, for people.
    pub scope: Option<String>,
    /// The rule that asked.
    pub matched_rule: Option<u64>,
    /// Tool manifest that the answer covers.
    pub manifest_digest: Digest,
    /// When it was asked.
    pub requested_at: Timestamp,
    /// When a yes is no longer a yes.
    pub expires_at: Option<Timestamp>,
    /// Where it stands.
    pub state: ApprovalState,
    /// The answer.
    pub decision: Option<ApprovalDecision>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(name: &str) -> ToolSpec {
        ToolSpec::new(name, "d", json!({"type": "object"}))
    }

    #[test]
    fn deny_beats_ask_beats_allow_in_every_order() {
        // PRM-2, TCK-9
        use RuleEffect::{Allow, Ask, Deny};
        for order in [
            [Deny, Ask, Allow],
            [Deny, Allow, Ask],
            [Ask, Deny, Allow],
            [Ask, Allow, Deny],
            [Allow, Deny, Ask],
            [Allow, Ask, Deny],
        ] {
            let rules = order
                .map(|effect| PermissionRule::for_tool(effect, "t"))
                .to_vec();
            let policy = PermissionPolicy::new(rules.clone(), None).unwrap();
            assert_eq!(policy.decide(&spec("t"), false).effect, Deny);
            let without_deny = rules
                .into_iter()
                .filter(|rule| rule.effect != Deny)
                .collect();
            assert_eq!(
                PermissionPolicy::new(without_deny, None)
                    .unwrap()
                    .decide(&spec("t"), false)
                    .effect,
                Ask
            );
        }
    }

    #[test]
    fn no_allow_rule_removes_the_tools_own_need() {
        // PRM-2
        let policy =
            PermissionPolicy::new(vec![PermissionRule::for_tool(RuleEffect::Allow, "t")], None)
                .unwrap();
        assert_eq!(policy.decide(&spec("t"), true).effect, RuleEffect::Ask);
        assert_eq!(policy.decide(&spec("t"), false).effect, RuleEffect::Allow);
    }

    #[test]
    fn the_default_asks_for_everything_that_may_write() {
        // PRM-3
        let policy = PermissionPolicy::default();
        assert_eq!(
            policy.decide(&spec("t").read_only(), false).effect,
            RuleEffect::Allow
        );
        assert_eq!(policy.decide(&spec("t"), false).effect, RuleEffect::Ask);
        let mut network = spec("t").read_only();
        network.permissions.network = true;
        assert_eq!(policy.decide(&network, false).effect, RuleEffect::Ask);
    }

    #[test]
    fn families_match_whole_segments_and_empty_rules_match_nothing() {
        // PRM-1, PRM-4
        let policy = PermissionPolicy::new(
            vec![PermissionRule::for_family(RuleEffect::Deny, "fs")],
            None,
        )
        .unwrap();
        assert!(policy.denies("fs") && policy.denies("fs.read") && !policy.denies("fsx.read"));
        let empty = PermissionRule {
            effect: RuleEffect::Deny,
            tool_name: None,
            tool_family: None,
            scope: None,
            message: None,
        };
        assert!(
            !PermissionPolicy::new(vec![empty], None)
                .unwrap()
                .denies("fs")
        );
        assert!(
            PermissionPolicy::new(vec![PermissionRule::for_tool(RuleEffect::Deny, " ")], None)
                .is_err()
        );
    }
}
