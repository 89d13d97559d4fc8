//! The one JSON object that a workload prints.

use serde_json::{Map, Value, json};

/// Figures, ratios and bounds of one workload.
#[derive(Debug)]
pub(crate) struct Report {
    workload: &'static str,
    parameters: Map<String, Value>,
    figures: Map<String, Value>,
    ratios: Map<String, Value>,
    bounds: Map<String, Value>,
    met: bool,
}

fn rounded(value: f64) -> Value {
    // Three decimals; more would claim a precision that no run has.
    json!((value * 1_000.0).round() / 1_000.0)
}

impl Report {
    pub(crate) fn new(workload: &'static str) -> Self {
        Report {
            workload,
            parameters: Map::new(),
            figures: Map::new(),
            ratios: Map::new(),
            bounds: Map::new(),
            met: true,
        }
    }

    pub(crate) fn parameter(&mut self, name: &str, value: impl Into<Value>) {
        self.parameters.insert(name.to_owned(), value.into());
    }

    /// A figure; its unit ends its name.
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), rounded(value));
    }

    pub(crate) fn ratio(&mut self, name: &str, value: f64) {
        self.ratios.insert(name.to_owned(), rounded(value));
    }

    /// The figure or ratio `name` must be at least `bound`.
    pub(crate) fn at_least(&mut self, name: &str, bound: f64) {
        let met = self.value(name).is_some_and(|value| value >= bound);
        self.bound(name, json!({"min": bound, "met": met}), met);
    }

    /// The figure or ratio `name` must be at most `bound`.
    pub(crate) fn at_most(&mut self, name: &str, bound: f64) {
        let met = self.value(name).is_some_and(|value| value <= bound);
        self.bound(name, json!({"max": bound, "met": met}), met);
    }

    fn bound(&mut self, name: &str, bound: Value, met: bool) {
        self.bounds.insert(name.to_owned(), bound);
        self.met &= met;
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.figures
            .get(name)
            .or_else(|| self.ratios.get(name))
            .and_then(Value::as_f64)
    }

    /// Every bound is met.
    pub(crate) fn all_met(&self) -> bool {
        self.met
    }

    pub(crate) fn to_json(&self) -> String {
        json!({
            "workload": self.workload,
            "parameters": self.parameters,
            "figures": self.figures,
            "ratios": self.ratios,
            "bounds": self.bounds,
        })
        .to_string()
    }

    pub(crate) fn to_lines(&self) -> String {
        let mut lines = vec![format!(
            "{} {}",
            self.workload,
            Value::Object(self.parameters.clone())
        )];
        for (name, value) in self.figures.iter().chain(&self.ratios) {
            let bound = self
                .bounds
                .get(name)
                .map_or_else(String::new, |bound| format!("  {bound}"));
            lines.push(format!("  {name:40} {value}{bound}"));
        }
        lines.join("\n")
    }
}

/// The middle of `values`; 0 of none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or_default();
    let lower = values
        .get(values.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or_default();
    f64::midpoint(lower, upper)
}

#[cfg(test)]
mod tests {
    use super::{Report, median};

    #[test]
    fn a_bound_is_met_at_its_value_and_missed_beyond() {
        for (value, met) in [(1.9, true), (2.0, true), (2.1, false)] {
            let mut report = Report::new("test");
            report.ratio("growth", value);
            report.at_most("growth", 2.0);
            assert_eq!(report.all_met(), met, "{value}");
        }
        for (value, met) in [(1.9, false), (2.0, true), (2.1, true)] {
            let mut report = Report::new("test");
            report.figure("steps_per_s", value);
            report.at_least("steps_per_s", 2.0);
            assert_eq!(report.all_met(), met, "{value}");
        }
    }

    #[test]
    fn a_bound_without_its_figure_is_missed() {
        let mut report = Report::new("test");
        report.at_most("nowhere", 1.0);
        assert!(!report.all_met());
    }

    #[test]
    fn the_object_has_exactly_the_promised_keys() {
        let mut report = Report::new("test");
        report.parameter("steps", 3);
        let value: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            ["bounds", "figures", "parameters", "ratios", "workload"]
        );
    }

    #[test]
    fn the_median_of_two_is_their_mean() {
        assert_eq!(median([4.0, 2.0]), 3.0);
        assert_eq!(median([4.0, 2.0, 9.0]), 4.0);
        assert_eq!(median([]), 0.0);
    }
}
