//! Canonical JSON: one writer and one strict reader (SES-17, SES-18).
