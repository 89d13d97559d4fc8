//! K65 and K66: clocks are evidence, never order (SES-6, F22).

use qitos_contracts::checkpoint::Page;
use qitos_contracts::clock::{Clock, Timestamp};
use qitos_contracts::snapshot::Lifecycle;

use super::expect::{head_is, open, persist, unexpected};
use super::history::{History, Step};
use super::subject::{StoreSubject, needs};
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    vec![
        Check::new(
            "K65.clock_back",
            "a clock set back a day changes neither order nor head",
            &["SES-6"],
            clock_back,
        )
        .needing(needs::CLOCK),
        Check::new(
            "K66.equal_times",
            "commits with equal times are ordered by generation",
            &["SES-6"],
            equal_times,
        )
        .needing(needs::CLOCK),
    ]
}

const DAY_MICROS: i64 = 86_400_000_000;

/// How the clock moves before each commit, in microseconds.
async fn ordered_whatever(stage: &Stage<dyn StoreSubject>, place: &str, moves: &[i64]) -> Verdict {
    let clock = stage
        .subject()
        .clock()
        .ok_or_else(|| Failure::new("the clock hook is gone"))?;
    let store = open(stage, place).await?;
    let mut history = History::new(place);
    for offset in moves {
        let now = clock.now().as_micros().saturating_add(*offset);
        clock.set(Timestamp::from_micros(now));
        let next = history.next_lifecycle();
        let receipt = persist(&*store, history.commit(Step::to(next))?).await?;
        head_is(&*store, &receipt).await?;
    }
    let another = open(stage, place).await?;
    for store in [&store, &another] {
        let mut listed = Vec::new();
        for limit in [2u32, 1_000] {
            let mut page = Page::newest(limit);
            listed.clear();
            loop {
                let found = store
                    .lineage(history.session(), page)
                    .await
                    .map_err(|error| unexpected("lineage", &error))?;
                listed.extend(found.entries.iter().map(|entry| entry.generation));
                match found.next_before_generation {
                    Some(before) if !found.entries.is_empty() => {
                        page = Page::newest(limit).before(before);
                    }
                    _ => break,
                }
            }
            let expected: Vec<u64> = (0..moves.len() as u64).rev().collect();
            ensure!(
                listed == expected,
                "the lineage is {listed:?} instead of newest generation first"
            );
        }
    }
    let step = Step::to(Lifecycle::Completed);
    let receipt = persist(&*store, history.commit(step)?).await?;
    head_is(&*another, &receipt).await
}

async fn clock_back(stage: Stage<dyn StoreSubject>) -> Verdict {
    ordered_whatever(
        &stage,
        "K65",
        &[
            0,
            5_000_000,
            -DAY_MICROS,
            1_000,
            -DAY_MICROS,
            3 * DAY_MICROS,
        ],
    )
    .await
}

async fn equal_times(stage: Stage<dyn StoreSubject>) -> Verdict {
    ordered_whatever(&stage, "K66", &[0; 6]).await
}
